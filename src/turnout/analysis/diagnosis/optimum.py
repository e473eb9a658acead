"""The optimum of the federation and of each client, found by descent; nothing here is closed form.

    x*    L-BFGS on F = Σ p_i F_i from the start
    F_k*  gradient descent on F_k from x*, with the step 1 / (2 L_k)

For convex F both come to the optimum. For a network they come to a point from which little is to be gained; Γ_k is then
a lower bound on F_k(x*) − min F_k.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.analysis.diagnosis.prober import Prober
from turnout.array_types import Floats

SAMPLES_LOOKED_AT = 1_500_000  # samples times iterations that the descent on F may take, and the same for all F_k
FEWEST, MOST = 20, 200  # iterations


def iterations_for(num_samples: int) -> int:
    """Return how many passes over the data a descent takes."""
    return max(FEWEST, min(MOST, SAMPLES_LOOKED_AT // max(num_samples, 1)))


def minimise(prober: Prober, start: Tensor) -> Tensor:
    """Return x*: where L-BFGS on the measured clients' objective ends; the best point it saw."""
    point = start.clone().requires_grad_(True)
    best: tuple[float, Tensor] = (float("inf"), start)

    def closure() -> Tensor:
        nonlocal best
        loss, gradient = prober.objective(point.detach().clone())
        point.grad = gradient.to(point)
        if loss < best[0]:
            best = (loss, point.detach().clone())
        return torch.tensor(loss, dtype=torch.float64)

    most = iterations_for(prober.num_samples)
    optimiser = torch.optim.LBFGS(
        [point], max_iter=most, max_eval=most, tolerance_grad=1e-9, history_size=20, line_search_fn="strong_wolfe"
    )
    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return best[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Γ_k of each measured client, and what the last half of the descent still gained."""

    gaps: Floats  # F_k(x*) − F_k*
    still_gaining: Floats


def client_gaps(prober: Prober, optimum: Tensor, curvatures: Floats) -> Gaps:
    """Return Γ_k = F_k(x*) − F_k*, by gradient descent of each client alone; curvatures are L_k."""
    half, lr = max(iterations_for(prober.num_samples) // 2, 1), 0.5 / curvatures
    at_optimum = prober.losses(optimum)
    models = optimum - prober.updates(optimum, half, lr)
    halfway = prober.losses(optimum, models)
    models = models - prober.updates(optimum, half, lr, starts=models)
    end = prober.losses(optimum, models)
    lowest = np.minimum(np.minimum(at_optimum, halfway), end)
    return Gaps(gaps=at_optimum - lowest, still_gaining=np.abs(halfway - end))
