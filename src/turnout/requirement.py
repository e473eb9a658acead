"""What a client requires of a model: the loss ρ_k on its training samples below which the model serves it.

ρ_k is given, or it is the loss of a model that the client trained alone, from the run's first model, measured on the
samples on which it was trained. F_k(x) is measured on the same samples, so that the two can be compared.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from torch import Tensor

from turnout.array_types import Bools, Floats, Ids
from turnout.errors import Problem
from turnout.protocols import Local, Population
from turnout.streams import Streams

ALONE = "alone"  # purpose of the random stream of batches with which clients train alone


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

    @property
    def uses_local_solver(self) -> bool:
        """Whether clients train alone with the run's own local solver."""
        return self.loss is None and self.lr is None

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


def is_served(losses: Floats, required: Floats) -> Bools:
    """Return whether the model serves each client: F_k(x) < ρ_k."""
    return np.asarray(losses < required)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appeal:
    """What the round's model is worth to each client; entries by client id, 0 for clients that do not belong."""

    losses: Floats  # F_k(x) on the client's training samples
    required: Floats  # ρ_k, the loss below which a model serves the client
    unserved_rounds: Ids  # consecutive rounds, up to this one, with F_k(x) >= ρ_k


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainAlone:
    """Ask clients to train a model alone, and for its loss on the samples it was trained on.

    Batches are keyed by (seed, ALONE, 0, client), so that the loss does not depend on the round of the request.
    """

    round: int
    streams: Streams
    model: Tensor  # where each starts
    clients: Ids  # ascending
    steps: Ids  # how many each does, whatever the fleet would allow
    local: Local
    settings: Mapping[str, Floats]  # the solver's settings, one value per client
    on_holdouts: tuple[str, ...] = ()  # metrics of each client's own model that are measured on its hold-out


@dataclass(frozen=True, slots=True, kw_only=True)
class LossesAlone:
    """The answer to TrainAlone, in the order of `clients`."""

    clients: Ids
    loss: Floats  # of each client's own model
    samples: int  # samples looked at, for the cost ledger
    gradients: int  # per-sample gradients of the training
    on_holdouts: Mapping[str, Floats] = field(default_factory=dict)  # by metric; NaN where a client has no hold-out
