"""Curvature of the objective at a model: the largest eigenvalue of its Hessian, by power iteration.

    v ← Hv / ‖Hv‖          Hv ≈ (∇F(x + εv) − ∇F(x)) / ε          L̂ = vᵀHv
    L_k ≈ ‖H_k v‖          for each client, along the same v

L_k is at least L̂ / 10, so that a descent with the step 1 / (2 L_k) has one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.analysis.diagnosis.estimate import Estimate
from turnout.analysis.diagnosis.prober import Prober
from turnout.array_types import Floats

ITERATIONS = 12
STEP = 1e-2  # ε, relative to 1 + ‖x‖ / √d


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Curvature:
    """The largest curvature of F, with what the last iteration changed as its error; and that of each client."""

    largest: Estimate  # L
    by_client: Floats  # L_k


def curvature(prober: Prober, model: Tensor) -> Curvature:
    """Return the curvature of the objective at a model."""
    generator = prober.streams.torch_generator("curvature")
    vector = torch.randn(model.shape, generator=generator, dtype=torch.float64).to(model)
    vector /= torch.linalg.vector_norm(vector)
    step = STEP * (1 + float(torch.linalg.vector_norm(model)) / model.numel() ** 0.5)
    _, gradient = prober.objective(model)
    values = [0.0]
    for _ in range(ITERATIONS):
        _, moved = prober.objective(model + step * vector)
        product = (moved - gradient) / step
        values.append(float(vector.double() @ product.double()))
        length = float(torch.linalg.vector_norm(product))
        if length == 0:
            break
        vector = product / length
    rows = (prober.gradients(model + step * vector) - prober.gradients(model)) / step
    own = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).cpu().numpy()
    largest = max(abs(values[-1]), np.finfo(float).tiny)
    return Curvature(largest=Estimate(largest, abs(values[-1] - values[-2])), by_client=np.maximum(own, largest / 10))
