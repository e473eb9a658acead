"""FedAvgM: a heavy ball at the server, kept rolling from round to round.

Intuition: directions that rounds agree on add up, and those that a lucky cohort happened to like cancel.

    b ← β·b + u                                (b = u at the first round)
    x ← x − η_g·b

Reduces to: server SGD when β = 0.
Reference: Hsu, Qi, Brown. Measuring the effects of non-identical data distribution. 2019. arXiv:1909.06335.
"""

from typing import ClassVar

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.settings import Positive, ShareBelowOne, rule


def rolled(buffer: Tensor | None, direction: Tensor, momentum: float) -> Tensor:
    """Return β·b + u; a buffer that is not there yet counts as zero."""
    return direction.clone() if buffer is None else buffer.mul(momentum).add_(direction)


@rule("server")
class FedAvgM:
    """Server momentum. At rest the step is η_g/(1−β) times the direction: lower lr when momentum is raised."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 1.0  # η_g
    momentum: ShareBelowOne = 0.9  # β

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g b and the new b."""
        buffer = rolled(memory.get("buffer"), step.direction, self.momentum)  # b
        return Moved(model.sub(buffer, alpha=self.lr), {"buffer": buffer})
