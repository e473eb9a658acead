"""Yogi at the client: Adam with a second moment that increases and decreases slowly.

Intuition: neither one large gradient nor one small gradient changes the step size of a parameter at once.

    m   ← β1·m + (1−β1)·g                      (m = 0 at the start of the round)
    v   ← v − (1−β2)·g²·sign(v − g²)           (v = v₀ at the start of the round)
    x_i ← x_i − η_l · m / (√v + τ_a)

    correction   none: sends Δ_i     local: sends Δ_i ⊘ C_i     joint: sends Δ_i ⊘ C_i and 1 ⊘ C_i
    a ← β1·a + (1−β1)/(√v + τ_a);   C_i ← C_i + a

Every client starts every round with new moments; there is no other mode. Adagrad's page explains the corrections.

Reduces to: Adam at the first step of a round when v₀ = 0.
Reference: Zaheer, Reddi, Sachan, Kale, Kumar. NeurIPS 2018; Wang et al. 2021. arXiv:2106.02305, for the corrections.
"""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from turnout.local.adam import LONG_AFTER, fused_step
from turnout.local.moments import Adaptive, is_alike, preconditioned_step, squares
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import ShareBelowOne, rule

ALMOST_ONE = math.nextafter(1.0, 0.0)  # a β2 with which Adam's step leaves v as it is, up to rounding


@rule("local")
class Yogi(Adaptive):
    """Yogi for a number of epochs or steps."""

    beta1: ShareBelowOne = 0.9  # decay β1 of the first moment m, 0 to below 1; 0 is without momentum, 0.9 is usual
    beta2: ShareBelowOne = 0.99  # 1−β2 is the step of the second moment v; β2 is 0 to below 1, 0.99 is usual

    def numbers(self) -> dict[str, float]:
        """Return τ_a, v₀ if it is not 0, β1 and β2."""
        return {**Adaptive.numbers(self), "beta1": self.beta1, "beta2": self.beta2}

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return new moments."""
        return self.fresh_state(params, ["mean", "square"])

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        beta1, beta2 = slot.settings["beta1"], slot.settings["beta2"]
        mean, square, new = slot.state["mean"][: len(slot.param)], squares(slot), slot.grad.square()
        sign = torch.sub(square, new).sign_()
        if is_alike(slot):
            square.addcmul_(sign, new, value=-(1 - cast(float, beta2)))  # v
            return fused_step(slot, mean, square, LONG_AFTER, ALMOST_ONE)
        square.sub_(new.mul_(sign).mul_(1 - beta2))  # v
        mean.lerp_(slot.grad, 1 - beta1)  # m
        return preconditioned_step(slot, mean, square, beta1)
