"""Server SGD: move the model against the direction the clients agreed on.

Intuition: with a rate of one the server simply takes the average model.

    x ← x − η_g u

Reduces to: FedAvg's model average when η_g = 1 and the weights sum to one.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from typing import ClassVar

from torch import Tensor

from turnout.protocols import Memory, Moved
from turnout.rows import Step
from turnout.settings import Positive, rule


@rule("server")
class SGD:
    """A fixed server learning rate."""

    wants_norms: ClassVar[bool] = False
    lr: Positive = 1.0  # η_g

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g u."""
        return Moved(model.sub(step.direction, alpha=self.lr))
