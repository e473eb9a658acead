"""Server SGD: subtract the aggregated update from the model.

Intuition: with a learning rate of one the new model is the average of the client models.

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
    lr: Positive = 1.0  # server learning rate η_g, greater than 0; 1 is FedAvg and usual

    @property
    def subtracts_step(self) -> bool:
        """Whether the new model is x − u."""
        return self.lr == 1.0

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g u."""
        return Moved(model.sub(step.direction, alpha=self.lr))
