"""FedAvgM: heavy-ball momentum at the server.

Intuition: directions that successive rounds agree on add up; directions peculiar to one cohort cancel.

    b ← β·b + u                                (b = u in the first round)
    x ← x − η_g·b

Reduces to: server SGD when β = 0.
Reference: Hsu, Qi, Brown. Measuring the effects of non-identical data distribution. 2019. arXiv:1909.06335.
"""

from typing import ClassVar

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.settings import Positive, ShareBelowOne, rule


def next_buffer(buffer: Tensor | None, direction: Tensor, momentum: float) -> Tensor:
    """Return β·b + u, or u in the first round."""
    return direction.clone() if buffer is None else buffer.mul(momentum).add_(direction)


@rule("server")
class FedAvgM:
    """Server momentum. A constant direction u leads to steps of η_g·u/(1−β): a larger β needs a smaller lr."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 1.0  # server learning rate η_g, greater than 0; 0.1 to 1 is usual
    momentum: ShareBelowOne = 0.9  # momentum β of the server, 0 to below 1; 0 is server SGD, 0.9 is usual

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g b and the new b."""
        buffer = next_buffer(memory.get("buffer"), step.direction, self.momentum)  # b
        return Moved(model.sub(buffer, alpha=self.lr), {"buffer": buffer})
