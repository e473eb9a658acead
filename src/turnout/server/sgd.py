"""Server SGD: move the model against the direction the clients agreed on.

Intuition: with a rate of one the server simply takes the average model.

    x ← x − η_g u

Reduces to: FedAvg's model average when η_g = 1 and the weights sum to one.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from turnout.errors import ConfigError
from turnout.protocols import Memory, Moved
from turnout.rows import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class SGD:
    """A fixed server learning rate."""

    wants_norms: ClassVar[bool] = False
    lr: float = 1.0  # η_g

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ConfigError(f"Server SGD needs lr > 0; got {self.lr}. Change server.lr; 1.0 is plain averaging.")

    def advance(self, model: Tensor, step: Step, memory: Memory) -> Moved:
        """Return x − η_g u."""
        return Moved(model.sub(step.direction, alpha=self.lr))
