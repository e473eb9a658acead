"""What the adaptive server rules share: moving averages of the direction, and the step that divides by their root."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from turnout.errors import ConfigError
from turnout.protocols import Memory


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


def check_settings(rule: str, settings: Iterable[tuple[str, float, bool, str]]) -> None:
    """Refuse the first setting, of (name, value, is it well, what is needed), that cannot be."""
    for name, value, is_well, need in settings:
        if not is_well:
            raise ConfigError(f"{rule} needs {name} {need}; got {value}. Change server.{name}.")


def check_adaptive(rule: Any) -> None:
    """Refuse settings of FedAdam or FedYogi that cannot be."""
    accumulator = rule.initial_accumulator
    began_well = accumulator == 0 or not rule.bias_correction
    check_settings(
        type(rule).__name__,
        (
            ("lr", rule.lr, rule.lr > 0, "> 0"),
            ("beta1", rule.beta1, 0 <= rule.beta1 < 1, "in [0, 1)"),
            ("beta2", rule.beta2, 0 <= rule.beta2 < 1, "in [0, 1)"),
            ("adaptivity", rule.adaptivity, rule.adaptivity > 0, "> 0"),
            ("initial_accumulator", accumulator, accumulator >= 0, ">= 0"),
            ("initial_accumulator", accumulator, began_well, "= 0 with bias_correction, which takes v to begin there"),
        ),
    )
