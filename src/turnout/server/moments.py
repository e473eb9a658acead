"""What the adaptive server rules share: moving averages of the direction, and the step that divides by their root."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from turnout.errors import ConfigError
from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.settings import Accumulator, Positive, ShareBelowOne, rule

Squares = Callable[[Tensor, Tensor, float], Tensor]  # the next v, from v, u and β2


class Moments(NamedTuple):
    """What an adaptive rule remembers."""

    first: Tensor  # m
    second: Tensor  # v
    steps: int  # t: server steps taken


def recalled(memory: Memory, model: Tensor, initial_accumulator: float) -> Moments:
    """Return what was remembered, or the start: m = 0, v = v₀, t = 0."""
    if memory:
        return Moments(memory["first"], memory["second"], memory["steps"])
    return Moments(torch.zeros_like(model), torch.full_like(model, initial_accumulator), 0)


def moving_average(average: Tensor, value: Tensor, decay: float) -> Tensor:
    """Return β·average + (1−β)·value."""
    return average.mul(decay).add_(value, alpha=1 - decay)


def bias_corrected(moments: Moments, beta1: float, beta2: float) -> Moments:
    """Return m/(1−β1ᵗ) and v/(1−β2ᵗ), t = 1 at the first step: averages that began at zero, put right."""
    first = moments.first / (1 - beta1**moments.steps)
    second = moments.second / (1 - beta2**moments.steps)
    return Moments(first, second, moments.steps)


def adaptive_direction(moments: Moments, adaptivity: float) -> Tensor:
    """Return m / (√v + τ_a); τ_a is outside the root."""
    return moments.first / moments.second.sqrt().add_(adaptivity)


@rule("server")
class Adaptive:
    """FedAdam and FedYogi, but for how v moves."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 0.01  # η_g
    beta1: ShareBelowOne = 0.9  # β1
    beta2: ShareBelowOne = 0.99  # β2
    adaptivity: Positive = 1e-3  # τ_a
    initial_accumulator: Accumulator = 0.0  # v₀
    bias_correction: bool = False  # divide m and v by what is missing while they are young

    def __post_init__(self) -> None:
        if self.bias_correction and self.initial_accumulator > 0:
            raise ConfigError(
                f"{type(self).__name__} needs initial_accumulator = 0 with bias_correction, which takes v to begin "
                f"there; got {self.initial_accumulator}. Change server.initial_accumulator."
            )

    def moved(self, model: Tensor, step: Step, memory: Memory, squares: Squares) -> Moved:
        """Return x − η_g m/(√v + τ_a), where `squares` makes the new v, and the new m and v."""
        was = recalled(memory, model, self.initial_accumulator)
        first = moving_average(was.first, step.direction, self.beta1)  # m
        now = Moments(first, squares(was.second, step.direction, self.beta2), was.steps + 1)
        used = bias_corrected(now, self.beta1, self.beta2) if self.bias_correction else now
        return Moved(model.sub(adaptive_direction(used, self.adaptivity), alpha=self.lr), now._asdict())
