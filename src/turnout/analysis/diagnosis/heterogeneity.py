"""How much the gradients of clients differ, how noisy they are, and how far local work drifts.

    σ_g²(x)  mean Σ p_i ‖∇F_i(x) − ∇F(x)‖², and the largest over clients
    σ²(x)    Σ p_i E‖g_i(x; B) − ∇F_i(x)‖², over mini-batches of the study's size
    drift    Σ p_i ‖Δ_i / (η τ) − ∇F_i(x)‖² after τ steps of gradient descent with rate η
    ADO      ‖Σ p_i Δ_i / (η τ)‖ at x*: the average drift at optimum; 0 for τ = 1 and for equal Hessians
    memory   Σ p_i ⟨d_i(x), d_i(y)⟩ / √(Σ p_i ‖d_i(x)‖² · Σ p_i ‖d_i(y)‖²),  d_i = ∇F_i − ∇F

The memory is how much of the difference between clients at x is still there at y; at 1, stored updates are as new.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.analysis.diagnosis.estimate import Estimate, mean_of, weighted_mean
from turnout.analysis.diagnosis.prober import Prober
from turnout.array_types import Floats

REPEATS = 8  # mini-batches per client
MOST_STEPS = 64  # local steps at which drift is measured; each is a pass over the measured clients' data


@dataclass(frozen=True, slots=True, kw_only=True)
class Dissimilarity:
    """σ_g² at one model."""

    mean: Estimate
    largest: float
    gradient_norm: float  # ‖∇F(x)‖


def square_norms(rows: Tensor) -> Floats:
    """Return ‖row‖² of each row, in float64."""
    norms: Floats = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square().cpu().numpy()
    return norms


def weighted_row(weights: Floats, rows: Tensor) -> Tensor:
    """Return Σ w_i row_i."""
    return torch.as_tensor(weights, dtype=rows.dtype, device=rows.device) @ rows


def dissimilarity(prober: Prober, model: Tensor) -> Dissimilarity:
    """Return σ_g² at a model."""
    rows = prober.gradients(model)
    mean = weighted_row(prober.weights, rows)
    squares = square_norms(rows - mean)
    return Dissimilarity(
        mean=weighted_mean(squares, prober.weights, prober.num_clients),
        largest=float(squares.max()),
        gradient_norm=float(torch.linalg.vector_norm(mean, dtype=torch.float64)),
    )


def gradient_noise(prober: Prober, model: Tensor, batch_size: int | None) -> Estimate:
    """Return σ² at a model; 0 if clients take full gradients."""
    if batch_size is None:
        return Estimate(0.0)
    full = prober.gradients(model)
    draws = [
        float(prober.weights @ square_norms(prober.gradients(model, batch_size=batch_size, round=1 + repeat) - full))
        for repeat in range(REPEATS)
    ]
    return mean_of(np.array(draws))


def drift_after(prober: Prober, model: Tensor, steps: int, lr: float) -> Estimate:
    """Return the drift of local work after so many steps."""
    rows = prober.updates(model, steps, lr) / (lr * steps) - prober.gradients(model)
    return weighted_mean(square_norms(rows), prober.weights, prober.num_clients)


def drift_curve(prober: Prober, model: Tensor, steps: int, lr: float) -> dict[tuple[int, float], Estimate]:
    """Return the drift at 1, 4, 16, … steps up to the asked number, with the asked rate and a tenth of it."""
    most = min(steps, MOST_STEPS)
    counts = sorted({*(4**power for power in range(4) if 4**power < most), most})
    return {(count, rate): drift_after(prober, model, count, rate) for rate in (lr, lr / 10) for count in counts}


def retention(prober: Prober, before: Tensor, after: Tensor) -> float:
    """Return how much of the difference between clients' gradients at one model is left at another, 0 to 1."""
    rows = [prober.gradients(model) for model in (before, after)]
    one, other = (each - weighted_row(prober.weights, each) for each in rows)
    common = float(prober.weights @ (one.double() * other.double()).sum(1).cpu().numpy())
    sizes = [float(prober.weights @ square_norms(each)) for each in (one, other)]
    return max(0.0, min(1.0, common / (sizes[0] * sizes[1]) ** 0.5)) if min(sizes) > 0 else 1.0


def average_drift(prober: Prober, model: Tensor, steps: int, lr: float) -> Estimate:
    """Return ‖Σ p_i Δ_i / (η τ) − ∇F(x)‖; at x*, where ∇F is 0, this is the average drift at optimum."""
    most = min(steps, MOST_STEPS)
    rows = prober.updates(model, most, lr) / (lr * most) - prober.gradients(model)
    mean = weighted_row(prober.weights, rows)
    spread = float(prober.weights**2 @ square_norms(rows - mean))
    left_out = max(1 - len(prober.clients) / prober.num_clients, 0.0)
    return Estimate(float(torch.linalg.vector_norm(mean, dtype=torch.float64)), (left_out * spread) ** 0.5)


def extrapolation(shares: Floats, rows: Tensor) -> float:
    """Return FedExP's η_g = max(1, Σ w_i ‖Δ_i‖² / (2 ‖Σ w_i Δ_i‖²)) for the updates Δ_i of a cohort with shares w_i."""
    below = 2 * float(square_norms(weighted_row(shares, rows)[None])[0])
    return max(1.0, float(shares @ square_norms(rows)) / below) if below > 0 else 1.0
