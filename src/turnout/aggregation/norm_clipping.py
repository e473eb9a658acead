"""Norm clipping: no client's change may be longer than a bound; then average.

Intuition: an attacker may still choose the direction of his push, but no longer its force.

    Δ̃_i = min(1, C/‖Δ_i‖)·Δ_i
    u   = Σ_i w_i Δ̃_i                           w_i: FedAvg's weights

C is given, or the median of this round's norms, every draw with one vote: then at most half of the draws are cut,
and C follows the shrinking changes.

Reduces to: FedAvg when no change is longer than C.
Reference: Sun, Kairouz, Suresh, McMahan. Can you really backdoor federated learning? 2019. arXiv:1911.07963.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch

from turnout.aggregation.fedavg import Weighting, participation_weights, weighting_objections
from turnout.array_types import Floats
from turnout.protocols import Ask, Combined, Memory, View, as_tensor
from turnout.rows import Rows
from turnout.settings import Positive, rule


def clip_factors(norms: Floats, clip_norm: float) -> Floats:
    """Return min(1, C/‖Δ_i‖); 1 for a change of zero."""
    return np.asarray(np.where(norms > clip_norm, clip_norm / np.where(norms > 0, norms, 1.0), 1.0))


@rule("aggregation")
class NormClipping:
    """A weighted average of changes cut to one length."""

    clip_norm: Positive | Literal["median"] = "median"  # C, or the median norm of the round
    weighting: Weighting = "ratio"  # how weights correct for who was asked, and for who was up

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the weighted mean of the clipped rows."""
        facts = rows.facts
        norms = torch.linalg.vector_norm(rows.delta, dim=1, dtype=torch.float64).cpu().numpy()
        bound = self.clip_norm
        if bound == "median":
            bound = float(np.median(np.repeat(norms, facts.multiplicity)))
        coefficients = participation_weights(facts, self.weighting) * clip_factors(norms, bound)
        direction = as_tensor(coefficients, rows.delta) @ rows.delta
        metrics = {"clip_norm": bound, "clipped": float((norms > bound).sum())}
        return Combined(direction=direction, coefficients=coefficients, metrics=metrics)

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a fleet does not go with the weighting."""
        return weighting_objections(self.weighting, plan)
