"""Adagrad at the client: each parameter's step is divided by the root of the sum of its squared gradients.

Intuition: parameters with rare gradients take large steps.

    v   ← v + g²                               (v = v₀ at the start of the round)
    x_i ← x_i − η_l · g / (√v + τ_a)

    correction   none: sends Δ_i     local: sends Δ_i ⊘ C_i     joint: sends Δ_i ⊘ C_i and 1 ⊘ C_i
    C_i = Σ_k 1/(√v_k + τ_a)

Every client starts every round with new accumulators; there is no other mode. Without correction each client has its
own scale, and the average is biased towards clients with small gradients. `joint`, with the Joint aggregation, removes
this bias. `local` changes the scale of the update, so the server learning rate must be tuned again.

Reduces to: SGD with the learning rate η_l/√v₀ as v₀ → ∞; C_i is then τ_i/√v₀ in every coordinate.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from turnout.local.moments import Adaptive, is_alike, preconditioned_step, squares
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import rule


def fused_step(slot: SlotUpdate, square: Tensor) -> None:
    """Move a slot, and its accumulators, in one pass over memory."""
    now = cast("Mapping[str, float]", slot.settings)
    torch._fused_adagrad_(
        [slot.param],
        [slot.grad],
        [square],
        [torch.tensor(1.0)],  # a step that matters to a decay of the rate alone
        lr=now["lr"],
        lr_decay=0.0,
        weight_decay=0.0,
        eps=now["adaptivity"],
        maximize=False,
    )


@rule("local")
class Adagrad(Adaptive):
    """Adagrad for a number of epochs or steps."""

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return new accumulators."""
        return self.fresh_state(params, ["square"])

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        square = squares(slot)
        if is_alike(slot):
            return fused_step(slot, square)
        square.addcmul_(slot.grad, slot.grad)  # v
        return preconditioned_step(slot, slot.grad, square)
