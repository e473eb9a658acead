"""FedAdam: each parameter's step is divided by the recent size of its movement.

Intuition: every parameter moves about η_g a round, whatever the scale of its gradient.

    m ← β1·m + (1−β1)·u
    v ← β2·v + (1−β2)·u²                       (v = v₀ at the start)
    x ← x − η_g · m / (√v + τ_a)
    with bias_correction, m/(1−β1ᵗ) and v/(1−β2ᵗ) take the place of m and v; t = 1 at the first step

Reduces to: FedYogi at the first step when v₀ = 0; with bias_correction, torch's Adam.
Differs from the paper: v₀ is 0, as in the authors' runs, and not τ_a² or more; τ_a is added outside the root.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.server.moments import (
    Moments,
    adaptive_direction,
    bias_corrected,
    check_adaptive,
    moving_average,
    recalled,
)


def averaged_squares(second: Tensor, direction: Tensor, beta2: float) -> Tensor:
    """Return β2·v + (1−β2)·u²."""
    return second.mul(beta2).addcmul_(direction, direction, value=1 - beta2)


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAdam:
    """Adam on the clients' average change."""

    wants_norms: ClassVar[bool] = False
    lr: float = 0.01  # η_g
    beta1: float = 0.9  # β1
    beta2: float = 0.99  # β2
    adaptivity: float = 1e-3  # τ_a
    initial_accumulator: float = 0.0  # v₀
    bias_correction: bool = False

    def __post_init__(self) -> None:
        check_adaptive(self)

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v."""
        was = recalled(memory, model, self.initial_accumulator)
        first = moving_average(was.first, step.direction, self.beta1)  # m
        now = Moments(first, averaged_squares(was.second, step.direction, self.beta2), was.steps + 1)
        used = bias_corrected(now, self.beta1, self.beta2) if self.bias_correction else now
        return Moved(model.sub(adaptive_direction(used, self.adaptivity), alpha=self.lr), now._asdict())
