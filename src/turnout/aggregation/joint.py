"""Joint correction: divide each client update by its own preconditioner, average, and multiply by a common one.

Intuition: adaptive clients measure distance in different units; convert to a common unit, average, and convert back.

    D_i = Δ_i ⊘ C_i                                    sent by a local solver with correction = "joint"
    u   = Σ_{i∈S} w_i D_i ⊘ Σ_{i∈S} w_i (1 ⊘ C_i)      0 in coordinates where the denominator is 0

Reduces to: FedAvg when every C_i is equal, or when one client returns an update; FedNova's direction with
τ_eff = 1 / Σ (w_i / τ_i), the harmonic mean, when the solver is plain SGD.
Differs from the paper: w_i is FedAvg's weight, by the client's data size; the paper counts the examples processed.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from typing import ClassVar

import torch
from torch import Tensor

from turnout.aggregation.fedavg import Weighting, participation_weights
from turnout.errors import UpdateError
from turnout.protocols import Ask, Combined, Memory, View
from turnout.rows import Rows, as_tensor
from turnout.settings import rule


def joint_direction(weights: Tensor, corrected: Tensor, inverse: Tensor) -> Tensor:
    """Return (Σ w D) ⊘ (Σ w / C), with 0 where the denominator is 0."""
    total, scale = weights @ corrected, weights @ inverse
    return torch.where(scale == 0, torch.zeros_like(total), total / torch.where(scale == 0, 1.0, scale))


@rule("aggregation")
class Joint:
    """The average update, corrected for the clients' preconditioners."""

    needs_inverse_rows: ClassVar[bool] = True
    is_weighted_sum: ClassVar[bool] = False  # the direction is a ratio of two weighted sums
    # how the weights w_i correct for client sampling, as in FedAvg: "ratio" normalises p_i over the cohort, which is
    # usual; "mean" gives every draw the same weight; "ht" uses p_i / π_i, "ht-fleet" p_i / (q_i π_i)
    weighting: Weighting = "ratio"

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Combined:
        """Return the corrected average."""
        if rows.extra is None:
            raise UpdateError(
                "Joint needs a second row 1/C_i from every client; this local solver sends none. "
                'Set local.correction = "joint", or aggregate with FedAvg.'
            )
        weights = participation_weights(rows.facts, self.weighting)
        direction = joint_direction(as_tensor(weights, rows.delta), rows.delta, rows.extra)
        return Combined(direction=direction, coefficients=weights)
