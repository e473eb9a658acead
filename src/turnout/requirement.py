"""What a client requires of a model: the loss ρ_k on its training samples below which the model serves it.

ρ_k is given, or it is the loss of a model that the client trained alone, from the run's first model, measured on the
samples on which it was trained. F_k(x) is measured on the same samples, so that the two can be compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from turnout.array_types import Floats
from turnout.errors import Problem
from turnout.protocols import Population


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Where ρ_k comes from."""

    loss: float | tuple[float, ...] | None  # ρ of all clients, or of each; None: of a model that each trains alone
    epochs: int = 1  # of training alone
    lr: float | None = None  # of plain SGD when training alone; None: the run's own local solver

    @classmethod
    def of(cls, setting: Literal["alone"] | float | tuple[float, ...], epochs: int, lr: float | None) -> "Requirement":
        """Return the requirement that a rule's settings describe."""
        return cls(loss=None if isinstance(setting, str) else setting, epochs=epochs, lr=lr)

    @property
    def is_alone(self) -> bool:
        """Whether clients train a model alone."""
        return self.loss is None

    def given(self, num_clients: int) -> Floats:
        """Return ρ_k of every client, where it is given."""
        return np.array(np.broadcast_to(np.asarray(self.loss, dtype=np.float64), num_clients))

    def problems(self, rule: str, section: str, population: Population) -> Iterator[Problem]:
        """Yield why a list of losses does not suit the number of clients."""
        if isinstance(self.loss, tuple) and len(self.loss) != population.num_clients:
            yield Problem(
                f"{rule} needs one requirement for all clients, or one per client; got {len(self.loss)} for "
                f"{population.num_clients} clients. Change {section}.requirement.",
                f"{section}.requirement",
            )


def is_served(losses: Floats, required: Floats) -> np.ndarray:
    """Return whether the model serves each client: F_k(x) < ρ_k."""
    return np.asarray(losses < required)
