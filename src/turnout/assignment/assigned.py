"""The assignment axis: which of several models each client of a cohort trains, and which it uses."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from turnout.array_types import Ids
from turnout.drift import Blocks
from turnout.protocols import Ask, Memory, View

if TYPE_CHECKING:
    from turnout.requests import Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The model of each client, and what the rule remembers."""

    model_of: Ids  # index of the model of each client, in the order of the clients that were given
    models: Tensor | None = None  # all models after the rule changed some, such as a copy or a merger; None: as before
    fresh: tuple[int, ...] = ()  # models that the rule changed: what the server's rules remember of them is dropped
    blocks: Blocks | None = None  # with data that drift: the time steps whose samples each client trains on; None: all
    are_sent: bool = False  # whether clients were sent the models to decide, so that none is sent again to train
    memory: Memory = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    events: tuple[str, ...] = ()  # what a reader should know of this round


class Assignment(Protocol):
    """Which of several models a client trains and uses."""

    @property
    def num_models(self) -> int:
        """The number of models at the server."""
        ...

    def assign(self, clients: Ids, models: Tensor, view: View, ask: Ask) -> "Assigned | Steps[Assigned]":
        """Return the model of each of these clients; `ask.losses(clients, model=models[j])` makes a request.

        It is called once a round with the cohort, before it trains, and again with all clients whenever they are
        evaluated, at the models of that time; what it remembers and changes then is dropped.
        """
        ...
