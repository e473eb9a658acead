"""FedAdagrad: Adagrad at the server; each parameter's step shrinks with the sum of its squared updates.

Intuition: parameters with large updates in every round take small steps; parameters with rare updates take large ones.

    m ← β1·m + (1−β1)·u
    v ← v + u²                                 (v = v₀ at the start)
    x ← x − η_g · m / (√v + τ_a)

Reduces to: x − η_g·u/(|u|√k + τ_a) at step k when β1 = v₀ = 0 and every u is the same.
Differs from the paper: the default v₀ is 0, as in the authors' experiments; the paper requires v₀ ≥ τ_a². As in the
paper, τ_a is outside the root.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from typing import ClassVar

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.server.moments import Moments, adaptive_direction, moving_average, restore_moments
from turnout.settings import Accumulator, Positive, ShareBelowOne, rule


def adagrad_second_moment(second: Tensor, direction: Tensor) -> Tensor:
    """Return v + u²."""
    return second.addcmul(direction, direction)


@rule("server")
class FedAdagrad:
    """Adagrad on the aggregated update."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 0.1  # server learning rate η_g, greater than 0; 0.01 to 1 is usual
    beta1: ShareBelowOne = 0.0  # decay β1 of the first moment m, 0 to below 1; 0, without momentum, is usual
    # adaptivity τ_a in the denominator, greater than 0; 1e-3 is usual, and a larger value makes the rule less adaptive
    adaptivity: Positive = 1e-3
    initial_accumulator: Accumulator = 0.0  # initial second moment v₀, 0 or more; 0 is usual

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g m/(√v + τ_a) and the new m and v."""
        old = restore_moments(memory, model, self.initial_accumulator)
        first = moving_average(old.first, step.direction, self.beta1)  # m
        new = Moments(first, adagrad_second_moment(old.second, step.direction), old.steps + 1)
        return Moved(model.sub(adaptive_direction(new, self.adaptivity), alpha=self.lr), new._asdict())
