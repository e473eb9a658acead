"""FedAdagrad: each parameter's step shrinks with all the movement it has seen.

Intuition: parameters that every round moves a lot are moved with care, and rare ones are moved at once.

    m ← β1·m + (1−β1)·u
    v ← v + u²                                 (v = v₀ at the start)
    x ← x − η_g · m / (√v + τ_a)

Reduces to: x − η_g·u/(|u|√k + τ_a) at step k when β1 = v₀ = 0 and every u is the same.
Differs from the paper: v₀ is 0, as in the authors' runs, where the paper asks for τ_a² or more. τ_a is outside the
root, as there.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.server.moments import Moments, adaptive_direction, check_settings, moving_average, recalled


def accumulated_squares(second: Tensor, direction: Tensor) -> Tensor:
    """Return v + u²."""
    return second.addcmul(direction, direction)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAdagrad:
    """Adagrad on the clients' average change."""

    wants_norms: ClassVar[bool] = False
    lr: float = 0.1  # η_g
    beta1: float = 0.0  # β1
    adaptivity: float = 1e-3  # τ_a
    initial_accumulator: float = 0.0  # v₀

    def __post_init__(self) -> None:
        check_settings(
            "FedAdagrad",
            (
                ("lr", self.lr, self.lr > 0, "> 0"),
                ("beta1", self.beta1, 0 <= self.beta1 < 1, "in [0, 1)"),
                ("adaptivity", self.adaptivity, self.adaptivity > 0, "> 0"),
                ("initial_accumulator", self.initial_accumulator, self.initial_accumulator >= 0, ">= 0"),
            ),
        )

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v."""
        was = recalled(memory, model, self.initial_accumulator)
        first = moving_average(was.first, step.direction, self.beta1)  # m
        now = Moments(first, accumulated_squares(was.second, step.direction), was.steps + 1)
        return Moved(model.sub(adaptive_direction(now, self.adaptivity), alpha=self.lr), now._asdict())
