"""The plan of one run: one choice per axis. And its state: one value that can be saved and restored."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from turnout.aggregation import FedAvg
from turnout.errors import ConfigError
from turnout.filtering import Everyone
from turnout.fleet import Fleet
from turnout.memory import DEFAULT_BUDGET
from turnout.protocols import Aggregation, Assist, Asynchrony, Filtering, Local, Memory, Population, Selection, Server
from turnout.selection import Uniform
from turnout.server import SGD as ServerSGD
from turnout.streams import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """When the model is measured."""

    every: int = 1  # rounds between measurements on the test set; the last round is always measured
    clients_every: int = 0  # rounds between measurements on every client's hold-out; 0 is only after the last round

    def __post_init__(self) -> None:
        if self.every < 1 or self.clients_every < 0:
            raise ConfigError(
                f"evaluate needs every >= 1 and clients_every >= 0; got {self.every} and {self.clients_every}. "
                "Change evaluate.every or evaluate.clients_every."
            )

    def is_due(self, round: int, rounds: int) -> bool:
        """Whether the test set is due after this round."""
        return round == rounds or round % self.every == 0

    def clients_due(self, round: int, rounds: int) -> bool:
        """Whether the hold-outs are due after this round."""
        return round == rounds or (self.clients_every > 0 and round > 0 and round % self.clients_every == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One choice per axis: this is the algorithm."""

    local: Local
    rounds: int
    fleet: Fleet = field(default_factory=Fleet)
    filtering: Filtering = field(default_factory=Everyone)
    selection: Selection = field(default_factory=Uniform)
    aggregation: Aggregation = field(default_factory=FedAvg)
    server: Server = field(default_factory=ServerSGD)
    assist: Assist | None = None  # none: every round is the clients'
    asynchrony: Asynchrony | None = None  # none: the server waits for everyone it asked
    evaluate: Cadence = field(default_factory=Cadence)
    table_budget: int = DEFAULT_BUDGET  # bytes of RAM one table of rows may take; beyond it lies in a file

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ConfigError(f"A study needs rounds >= 1; got {self.rounds}. Change rounds.")


@dataclass(slots=True, kw_only=True)
class State:
    """Everything a run carries from one round to the next. Randomness is keyed, so it is not here."""

    model: Tensor
    buffers: Tensor | None = None
    round: int = 0  # rounds completed
    server: Memory = field(default_factory=dict)
    aggregation: Memory = field(default_factory=dict)
    selection: Memory = field(default_factory=dict)
    filtering: Memory = field(default_factory=dict)
    local: Memory = field(default_factory=dict)
    members: Memory = field(default_factory=dict)
    flight: Memory = field(default_factory=dict)  # answers on their way, where the server does not wait
    restart: int = 0  # the round after which learning-rate schedules count again
    sim_seconds: float = 0.0
    last_losses: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def start(cls, model: Tensor, population: Population, buffers: Tensor | None = None) -> "State":
        """Return the state before the first round."""
        return cls(model=model, buffers=buffers, last_losses=np.full(population.num_clients, np.nan))
