"""Joint correction: undo each client's preconditioner before averaging, and put a common one back.

Intuition: adaptive clients measure distance each with their own ruler; convert, average, and convert back.

    D_i = Δ_i ⊘ C_i                                    sent by a local solver with correction = "joint"
    u   = Σ_{i∈S} w_i D_i ⊘ Σ_{i∈S} w_i (1 ⊘ C_i)      0 where the denominator is 0

Reduces to: FedAvg when every C_i is equal, or when one client answers; FedNova's direction with
τ_eff = 1 / Σ (w_i / τ_i), the harmonic mean, when the solver is plain SGD.
Differs from the paper: w_i is FedAvg's weight, by the data a client holds, not by the examples it went through.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from turnout.aggregation.fedavg import Weighting, participation_weights, weighting_objections
from turnout.errors import UpdateError
from turnout.protocols import Ask, Combined, Memory, View, as_tensor
from turnout.rows import Rows
from turnout.settings import rule


def joint_direction(weights: Tensor, corrected: Tensor, inverse: Tensor) -> Tensor:
    """Return (Σ w D) ⊘ (Σ w / C), 0 where the denominator is 0."""
    total, scale = weights @ corrected, weights @ inverse
    return torch.where(scale == 0, torch.zeros_like(total), total / torch.where(scale == 0, 1.0, scale))


@rule("aggregation")
class Joint:
    """The average change, with the clients' preconditioners corrected for."""

    is_weighted_sum: ClassVar[bool] = False  # the direction is more than coefficients times rows
    weighting: Weighting = "ratio"  # how weights correct for who was asked, and for who was up

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

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a local solver that sends no second row does not go with this rule, or a fleet."""
        yield from weighting_objections(self.weighting, plan)
        got = getattr(plan.local, "correction", None)
        if got != "joint":
            came = f'correction = "{got}"' if got is not None else "no correction"
            yield (
                f'Joint needs a local solver with correction = "joint"; {type(plan.local).__name__} has {came}. '
                'Set local.correction = "joint" on an adaptive solver, or aggregate with FedAvg.'
            )
