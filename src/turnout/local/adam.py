"""Adam at the client: a moving average of gradients, divided by the root of a moving average of their squares.

Intuition: every parameter moves by about η_l per step, whatever the scale of its gradient.

    m   ← β1·m + (1−β1)·g                      (m = 0 at the start of the round)
    v   ← β2·v + (1−β2)·g²                     (v = v₀ at the start of the round)
    x_i ← x_i − η_l · m / (√v + τ_a)
    with bias_correction, m/(1−β1ᵏ⁺¹) and v/(1−β2ᵏ⁺¹) replace m and v in the last line at step k = 0, 1, …

    correction   none: sends Δ_i     local: sends Δ_i ⊘ C_i     joint: sends Δ_i ⊘ C_i and 1 ⊘ C_i
    a ← β1·a + (1−β1)/(√v + τ_a);   C_i ← C_i + a          (a/(1−β1ᵏ⁺¹) with bias_correction)

Every client starts every round with new moments; there is no other mode. Adagrad's page explains the corrections.

Reduces to: torch's Adam with bias_correction; when β2 = 0 and β1 = 0, steps of η_l·sign(g) as τ_a → 0.
Differs from the paper: bias_correction is an addition, off by default; if it is on, C_i includes it.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from turnout.errors import ConfigError
from turnout.local.moments import Adaptive, is_alike, preconditioned_step, squares
from turnout.protocols import Memory, SlotUpdate
from turnout.settings import ShareBelowOne, rule

LONG_AFTER = math.inf  # the step whose bias correction is 1


def fused_step(slot: SlotUpdate, mean: Tensor, square: Tensor, count: float, beta2: float) -> None:
    """Move a slot, and its moments, in one pass over memory; `count` is the k+1 of the bias correction."""
    now = cast("Mapping[str, float]", slot.settings)
    torch._fused_adam_(
        [slot.param],
        [slot.grad],
        [mean],
        [square],
        [],
        [torch.tensor(count, dtype=torch.float64)],
        lr=now["lr"],
        beta1=now["beta1"],
        beta2=beta2,
        weight_decay=0.0,
        eps=now["adaptivity"],
        amsgrad=False,
        maximize=False,
    )


@rule("local")
class Adam(Adaptive):
    """Adam for a number of epochs or steps."""

    beta1: ShareBelowOne = 0.9  # decay β1 of the first moment m, 0 to below 1; 0 is without momentum, 0.9 is usual
    beta2: ShareBelowOne = 0.99  # decay β2 of the second moment v, 0 to below 1; 0.99 is usual
    bias_correction: bool = False  # divide m by 1−β1ᵏ⁺¹ and v by 1−β2ᵏ⁺¹, as torch's Adam does; false as in the paper

    def __post_init__(self) -> None:
        Adaptive.__post_init__(self)
        if self.bias_correction and self.initial_accumulator > 0:
            raise ConfigError(
                "Adam needs initial_accumulator = 0 with bias_correction, which assumes that v starts at 0; got "
                f"{self.initial_accumulator}. Change local.initial_accumulator.",
                setting="local.initial_accumulator",
            )

    def numbers(self) -> dict[str, float]:
        """Return τ_a, v₀ if it is not 0, β1 and β2."""
        return {**Adaptive.numbers(self), "beta1": self.beta1, "beta2": self.beta2}

    @property
    def features(self) -> frozenset[str]:
        """The active features; all clients of one block have the same correction."""
        flags = {"bias_correction"} if self.bias_correction else set()
        return frozenset({*self.numbers(), f"correction {self.correction}", *flags})

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return new moments."""
        return self.fresh_state(params, ["mean", "square"])

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        beta1, beta2 = slot.settings["beta1"], slot.settings["beta2"]
        mean, square = slot.state["mean"][: len(slot.param)], squares(slot)
        if is_alike(slot):
            count = slot.step + 1.0 if self.bias_correction else LONG_AFTER
            return fused_step(slot, mean, square, count, cast(float, beta2))
        mean.lerp_(slot.grad, 1 - beta1)  # m
        square.lerp_(slot.grad.square_(), 1 - beta2)  # v
        if not self.bias_correction:
            return preconditioned_step(slot, mean, square, beta1)
        unbias = 1 / (1 - beta1 ** (slot.step + 1))
        return preconditioned_step(slot, mean * unbias, square / (1 - beta2 ** (slot.step + 1)), beta1, unbias)
