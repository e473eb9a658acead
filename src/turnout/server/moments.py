"""First and second moments of the aggregated update, and the step m / (√v + τ_a), for the adaptive server rules."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from turnout.errors import ConfigError
from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.settings import Accumulator, Positive, ShareBelowOne, rule

SecondMoment = Callable[[Tensor, Tensor, float], Tensor]  # returns the next v from v, u and β2


class Moments(NamedTuple):
    """The memory of an adaptive server rule."""

    first: Tensor  # m
    second: Tensor  # v
    steps: int  # t, the number of server steps so far


def restore_moments(memory: Memory, model: Tensor, initial_accumulator: float) -> Moments:
    """Return the moments in the memory, or the initial ones: m = 0, v = v₀, t = 0."""
    if memory:
        return Moments(memory["first"], memory["second"], memory["steps"])
    return Moments(torch.zeros_like(model), torch.full_like(model, initial_accumulator), 0)


def moving_average(average: Tensor, value: Tensor, decay: float) -> Tensor:
    """Return β·average + (1−β)·value."""
    return average.mul(decay).add_(value, alpha=1 - decay)


def bias_corrected(moments: Moments, beta1: float, beta2: float) -> Moments:
    """Return m/(1−β1ᵗ) and v/(1−β2ᵗ), with t = 1 at the first step; this removes the bias of a start at zero."""
    first = moments.first / (1 - beta1**moments.steps)
    second = moments.second / (1 - beta2**moments.steps)
    return Moments(first, second, moments.steps)


def adaptive_direction(moments: Moments, adaptivity: float) -> Tensor:
    """Return m / (√v + τ_a); τ_a is outside the root."""
    return moments.first / moments.second.sqrt().add_(adaptivity)


@rule("server")
class Adaptive:
    """The settings and the step of FedAdam and FedYogi, which differ only in the second moment v."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 0.01  # server learning rate η_g, greater than 0; 0.001 to 0.1 is usual
    beta1: ShareBelowOne = 0.9  # decay β1 of the first moment m, 0 to below 1; 0 is without momentum, 0.9 is usual
    beta2: ShareBelowOne = 0.99  # decay β2 of the second moment v, 0 to below 1; 0.99 is usual
    # adaptivity τ_a in the denominator, greater than 0; 1e-3 is usual, and a larger value makes the rule less adaptive
    adaptivity: Positive = 1e-3
    initial_accumulator: Accumulator = 0.0  # initial second moment v₀, 0 or more; 0 is usual
    # divide m by 1−β1ᵗ and v by 1−β2ᵗ, as Adam does for a single machine; false as in the paper
    bias_correction: bool = False

    def __post_init__(self) -> None:
        if self.bias_correction and self.initial_accumulator > 0:
            raise ConfigError(
                f"{type(self).__name__} needs initial_accumulator = 0 with bias_correction, which assumes that v "
                f"starts at 0; got {self.initial_accumulator}. Change server.initial_accumulator.",
                setting="server.initial_accumulator",
            )

    def adaptive_step(self, model: Tensor, step: Step, memory: Memory, second_moment: SecondMoment) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v; `second_moment` computes the new v."""
        old = restore_moments(memory, model, self.initial_accumulator)
        first = moving_average(old.first, step.direction, self.beta1)  # m
        new = Moments(first, second_moment(old.second, step.direction, self.beta2), old.steps + 1)
        unbiased = bias_corrected(new, self.beta1, self.beta2) if self.bias_correction else new
        return Moved(model.sub(adaptive_direction(unbiased, self.adaptivity), alpha=self.lr), new._asdict())
