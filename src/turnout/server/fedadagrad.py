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

from typing import ClassVar

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.server.moments import Moments, adaptive_direction, moving_average, recalled
from turnout.settings import Accumulator, Positive, ShareBelowOne, rule


def accumulated_squares(second: Tensor, direction: Tensor) -> Tensor:
    """Return v + u²."""
    return second.addcmul(direction, direction)


@rule("server")
class FedAdagrad:
    """Adagrad on the clients' average change."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 0.1  # η_g
    beta1: ShareBelowOne = 0.0  # β1
    adaptivity: Positive = 1e-3  # τ_a
    initial_accumulator: Accumulator = 0.0  # v₀

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v."""
        was = recalled(memory, model, self.initial_accumulator)
        first = moving_average(was.first, step.direction, self.beta1)  # m
        now = Moments(first, accumulated_squares(was.second, step.direction), was.steps + 1)
        return Moved(model.sub(adaptive_direction(now, self.adaptivity), alpha=self.lr), now._asdict())
