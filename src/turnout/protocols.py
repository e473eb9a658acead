"""The axes: one small protocol each. A rule of one's own is a class with the axis's method; nothing is subclassed.

A method that needs to ask clients first is a generator (`Steps`): it yields requests and returns its result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from turnout.rows import Facts, Rows, Step
from turnout.streams import Floats, Ids, Streams

if TYPE_CHECKING:
    from turnout.requests import Steps

Memory = dict[str, Tensor]  # what a rule remembers between rounds; saved and restored as it is
Batching = Literal["shuffled", "replaced", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """What the coordinator knows of the clients without seeing their data."""

    sizes: Ids  # n_i
    weights: Floats  # p_i
    everyone: Ids  # 0 … N−1, made once
    label_counts: Any = None  # (clients, classes), where a rule needs it

    @classmethod
    def of(cls, sizes: Ids, label_counts: Ids | None = None) -> "Population":
        """Return the population of clients with these sizes."""
        return cls(sizes=sizes, weights=sizes / sizes.sum(), everyone=np.arange(len(sizes)), label_counts=label_counts)

    @property
    def num_clients(self) -> int:
        """N."""
        return len(self.sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a rule may look at in a round; read-only."""

    round: int  # from 1
    rounds: int  # T
    streams: Streams
    population: Population
    model: Tensor
    buffers: Tensor | None = None
    last_losses: Floats = field(default_factory=lambda: np.zeros(0))  # NaN for clients never heard from
    memory: Mapping[str, Tensor] = field(default_factory=dict)  # the rule's own

    @property
    def weights(self) -> Floats:
        """p_i."""
        return self.population.weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Who is asked: each client once, with how often it was drawn."""

    clients: Ids  # ascending
    multiplicity: Ids
    inclusion_prob: Floats | None = None  # π_i, where known
    memory: Memory = field(default_factory=dict)

    @classmethod
    def of(cls, drawn: Ids, inclusion_prob: Floats | None = None) -> "Choice":
        """Return the choice of these draws; `inclusion_prob` is by client id, for all clients."""
        clients, counts = np.unique(np.asarray(drawn, dtype=np.int64), return_counts=True)
        prob = None if inclusion_prob is None else inclusion_prob[clients]
        return cls(clients=clients, multiplicity=counts.astype(np.int64), inclusion_prob=prob)


class Availability(Protocol):
    """Who is up."""

    def up(self, view: View) -> Ids:
        """Return the clients that are up this round, ascending."""
        ...


class Work(Protocol):
    """How much of the asked work gets done."""

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return how many of the asked steps each client completes; 0 is a client that never answers."""
        ...


class Filtering(Protocol):
    """Which of those that are up may be asked."""

    def keep(self, pool: Ids, view: View) -> "Ids | Steps[Ids]":
        """Return the part of the pool that may be asked, ascending."""
        ...


class Selection(Protocol):
    """Who is asked."""

    @property
    def cohort_size(self) -> int | None:
        """How many are drawn; None for all."""
        ...

    def choose(self, pool: Ids, view: View) -> "Choice | Steps[Choice]":
        """Return who of the pool is asked."""
        ...


class Local(Protocol):
    """What a client does: a solver that works element-wise on rows, with settings per row."""

    @property
    def batch_size(self) -> int | None:
        """B; None for all local samples."""
        ...

    @property
    def batches(self) -> Batching:
        """How mini-batches are drawn."""
        ...

    @property
    def features(self) -> frozenset[str]:
        """What is switched on beyond the plain step; rows of one class and one feature set are stacked."""
        ...

    def asked(self, clients: Ids, view: View) -> Ids:
        """Return how many local steps each client is asked for."""
        ...

    def settings(self, clients: Ids, view: View) -> dict[str, Floats]:
        """Return the solver's settings, one value per client; "lr" is always among them."""
        ...

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return ‖a_i‖₁ of each client after so many steps."""
        ...

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return the solver's state for one block, one mapping per parameter; `params` have rows in front."""
        ...

    def update(self, slot: "SlotUpdate") -> None:
        """Move one parameter of every row in the block by one step, in place."""
        ...


@dataclass(slots=True)
class SlotUpdate:
    """One parameter of a block of rows at one local step; every tensor has the rows in front."""

    param: Tensor
    grad: Tensor  # free to be overwritten
    anchor: Tensor  # the round's model, broadcast over rows
    state: Memory
    settings: Mapping[str, Tensor | float]  # a float where all rows agree, else shaped to broadcast
    step: int  # k, from 0
    control: Tensor | None = None


class Linear(Protocol):
    """An aggregation that needs only weighted sums: rows are reduced block by block."""

    def coefficients(self, facts: Facts) -> Floats:
        """Return the coefficient of each row."""
        ...


@runtime_checkable
class Rowwise(Protocol):
    """An aggregation that needs the rows themselves, or remembers some."""

    def combine(self, rows: Rows, memory: Memory, view: View) -> tuple[Tensor, Floats, Memory]:
        """Return the direction, the coefficients of the rows in it, and the new memory."""
        ...


Aggregation = Linear | Rowwise


class Server(Protocol):
    """How the model moves."""

    @property
    def wants_norms(self) -> bool:
        """Whether the rule needs ‖Δ_i‖²."""
        ...

    def advance(self, model: Tensor, step: Step, memory: Memory) -> "Moved":
        """Return the new model and the rule's new memory; the inputs are not changed."""
        ...


@dataclass(frozen=True, slots=True)
class Moved:
    """The model after a server step."""

    model: Tensor
    memory: Memory = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # e.g. the server learning rate that was used
    evaluate: Tensor | None = None  # what to evaluate instead of the model (FedExP's average of two iterates)


def no_memory() -> Memory:
    """Return the memory of a rule that remembers nothing."""
    return {}


def as_tensor(values: Floats, like: Tensor) -> Tensor:
    """Return numbers as a tensor of the same kind and place as another."""
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)
