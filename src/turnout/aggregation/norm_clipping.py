"""Norm clipping: scale down every client update whose norm exceeds a bound, then average.

Intuition: an attacker can still choose the direction of its update, but not its size.

    Δ̃_i = min(1, C/‖Δ_i‖)·Δ_i
    u   = Σ_i w_i Δ̃_i                           w_i: FedAvg's weights

C is a setting, or the median of this round's norms, where every draw has one vote. With the median at most half of the
draws are clipped, and C decreases as the updates become smaller.

Reduces to: FedAvg when no update norm exceeds C.
Reference: Sun, Kairouz, Suresh, McMahan. Can you really backdoor federated learning? 2019. arXiv:1911.07963.
"""

from typing import Literal

import numpy as np
import torch

from turnout.aggregation.fedavg import Weighting, participation_weights
from turnout.array_types import Floats
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows, as_tensor
from turnout.settings import Positive, rule


def clip_factors(norms: Floats, clip_norm: float) -> Floats:
    """Return min(1, C/‖Δ_i‖); 1 for an update of zero."""
    return np.asarray(np.where(norms > clip_norm, clip_norm / np.where(norms > 0, norms, 1.0), 1.0))


@rule("aggregation")
class NormClipping:
    """A weighted average of updates with a limited norm."""

    # largest allowed update norm C, greater than 0; "median" is the median norm of the round and needs no tuning
    clip_norm: Positive | Literal["median"] = "median"
    # how the weights w_i correct for client sampling, as in FedAvg: "ratio" normalises p_i over the cohort, which is
    # usual; "mean" gives every draw the same weight; "ht" uses p_i / π_i, "ht-fleet" p_i / (q_i π_i)
    weighting: Weighting = "ratio"

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the weighted mean of the clipped updates."""
        facts = rows.facts
        norms = torch.linalg.vector_norm(rows.delta, dim=1, dtype=torch.float64).cpu().numpy()
        bound = self.clip_norm
        if bound == "median":
            bound = float(np.median(np.repeat(norms, facts.multiplicity)))
        coefficients = participation_weights(facts, self.weighting) * clip_factors(norms, bound)
        direction = as_tensor(coefficients, rows.delta) @ rows.delta
        metrics = {"clip_norm": bound, "clipped": float((norms > bound).sum())}
        return Combined(direction=direction, coefficients=coefficients, metrics=metrics)
