"""The axes: one small protocol each. A method that asks clients first is a generator: it yields requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.row_table import DEFAULT_BUDGET, RowTable
from turnout.rows import Facts, Rows, Step
from turnout.streams import Streams

if TYPE_CHECKING:
    from turnout.requests import Expect, Probe, Score, Steps, Train
    from turnout.requirement import Appeal, Requirement, TrainAlone

Memory = dict[str, Any]  # what a rule remembers between rounds, all finite: tensors, arrays, row tables, plain numbers
Batching = Literal["shuffled", "replaced", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """What the coordinator knows of the clients without seeing their data."""

    sizes: Ids  # n_i
    weights: Floats  # p_i
    everyone: Ids  # 0 … N−1, made once
    label_counts: Any = None  # (clients, classes), where a rule needs it
    counted: Any = None  # bool per client: is it in the objective? None: all are
    server_size: int = 0  # samples the server itself holds
    public_size: int = 0  # inputs of the public set, which have no labels
    holdout_sizes: Any = None  # samples each client holds out; None: not known
    drift: Any = None  # a turnout.drift.Drift: how the clients' samples change with time; None: they do not
    groups: tuple[str, ...] | None = None  # the group of each client, such as its region; None: the data name none

    @classmethod
    def of(cls, sizes: Ids, label_counts: Ids | None = None, server_size: int = 0) -> "Population":
        """Return the population of clients with these sizes."""
        shares, everyone = sizes / sizes.sum(), np.arange(len(sizes))
        return cls(sizes=sizes, weights=shares, everyone=everyone, label_counts=label_counts, server_size=server_size)

    @property
    def num_clients(self) -> int:
        """How many clients there ever are."""
        return len(self.sizes)

    @property
    def num_counted(self) -> int:
        """N: how many clients are in the objective."""
        return self.num_clients if self.counted is None else int(self.counted.sum())


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
    memory: Mapping[str, Any] = field(default_factory=dict)  # the rule's own
    restart: int = 0  # the round after which learning-rate schedules count again
    sim_seconds: float = 0.0  # simulated time at the start of the round
    table_budget: int = DEFAULT_BUDGET  # bytes of RAM one table of rows may take
    devices: Any = None  # a submodels.Devices, where clients train models of different widths
    appeal: "Appeal | None" = None  # for an availability rule that needs it; None: no model was measured

    @property
    def weights(self) -> Floats:
        """p_i."""
        return self.population.weights

    def table(self) -> RowTable:
        """Return a new table with one row of zeros per client."""
        return RowTable(self.population.num_clients, self.model, self.table_budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Who is asked: each client once, with how often it was drawn."""

    clients: Ids  # ascending
    multiplicity: Ids
    inclusion_prob: Floats | None = None  # π_i, where known
    trained: Any = None  # a Trained answer with rows for these clients, where the rule had them train already
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


class Membership(Protocol):
    """Who belongs to the federation, and when."""

    def members(self, view: View) -> Ids:
        """Return who belongs in this round, ascending; round 0 is before the first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What the clock made of a round."""

    done: Ids  # steps completed in time; 0: none
    late: Any  # bool per client: it answered, but after the round was closed
    round_seconds: float
    progress: Ids | None = None  # steps that each client did until it returned or was cut off; None: not known
    seconds: Floats | None = None  # when that was, from the start of its work, NaN for a client that does nothing


class Clock(Protocol):
    """How long things take."""

    @property
    def idle_seconds(self) -> float:
        """How long the server waits when there is nobody to ask."""
        ...

    def run(self, clients: Ids, steps: Ids, model_bytes: "int | Ids", view: View) -> Timing:
        """Return what each client gets done in time, and how long the round takes; `model_bytes` may be one each."""
        ...

    def seconds(self, clients: Ids, steps: Ids, model_bytes: "int | Ids", view: View) -> Floats:
        """Return how long each client takes for all of its work, download and upload included."""
        ...


class Asynchrony(Protocol):
    """Rounds in which the server does not wait for everyone."""

    @property
    def buffer_size(self) -> int:
        """Answers that make a server step."""
        ...

    @property
    def concurrency(self) -> int:
        """Clients at work at any time."""
        ...

    def weight(self, staleness: Ids) -> Floats:
        """Return the factor on answers that are so many server steps old."""
        ...


class Assist(Protocol):
    """Rounds in which the server itself takes a step on its own samples."""

    def takes(self, view: View) -> bool:
        """Whether this round is the server's."""
        ...

    @property
    def lr(self) -> float:
        """The rate of the server's own SGD."""
        ...

    @property
    def steps(self) -> int:
        """How many steps it takes in its round."""
        ...

    @property
    def batch_size(self) -> int | None:
        """Samples in each step; None for all it has."""
        ...


class Work(Protocol):
    """How much of the asked work gets done."""

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return how many of the asked steps each client completes; 0 is a client that never answers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a filter let through, and the work it had done on the way."""

    clients: Ids  # ascending
    trained: Any = None  # a Trained answer with rows for (at least) these clients, to be used instead of asking again
    memory: Memory = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)


class Filtering(Protocol):
    """Which of those that are up may be asked."""

    def keep(self, pool: Ids, view: View, ask: "Ask") -> "Kept | Steps[Kept]":
        """Return the part of the pool that may be asked; `ask.train(clients)` makes a request to train them."""
        ...


class Selection(Protocol):
    """Who is asked."""

    @property
    def cohort_size(self) -> int | None:
        """How many are drawn; None for all."""
        ...

    def choose(self, pool: Ids, view: View, ask: "Ask") -> "Choice | Steps[Choice]":
        """Return who of the pool is asked; `ask.losses(clients)` makes a request that may be yielded."""
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
    def cycle(self) -> tuple[int, ...]:
        """Which of the batches drawn for a cycle of steps each of its steps uses; (0,) is a batch for each step."""
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

    @property
    def client_state(self) -> "ClientState | None":
        """What each client remembers from round to round; None for nothing."""
        ...

    @property
    def keeps(self) -> tuple[str, ...]:
        """Entries of the solver's state that each client keeps until its next round; () for none."""
        ...

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return the solver's state, one mapping per parameter; then what clients keep is written over it."""
        ...

    def update(self, slot: "SlotUpdate") -> None:
        """Move one parameter of every row in the block by one step, in place."""
        ...

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, Tensor | None]:
        """Return the change of one parameter as it is sent, and a second row beside it where the solver has one."""
        ...


class ClientState(Protocol):
    """What clients remember from round to round: one row each, of the model's shape, zero at first.

    Client i subtracts k_i = row_i − Σ_j p_j row_j from its gradients. Its next row is k_i + s_i Δ_i, or ∇f_i(x).
    """

    @property
    def name(self) -> str:
        """The name of the rows in the client store."""
        ...

    @property
    def source(self) -> Literal["update", "gradient"]:
        """What the new row is made of."""
        ...

    def scale(self, facts: Facts) -> Floats:
        """Return s_i of each client."""
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
    offset: Tensor | None = None  # k_i, to be subtracted from the gradient


class Linear(Protocol):
    """An aggregation that needs only weighted sums: rows are reduced block by block."""

    def coefficients(self, facts: Facts) -> Floats:
        """Return the coefficient of each row."""
        ...


class Rowwise(Protocol):
    """An aggregation that needs the rows themselves, or remembers some."""

    def combine(self, rows: Rows, memory: Memory, view: View, ask: "Ask") -> "Combined | Steps[Combined]":
        """Return the direction, the coefficients of the rows in it, and the new memory."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Combined:
    """A descent-positive direction, what it was made of, and what the rule remembers."""

    direction: Tensor
    coefficients: Floats
    memory: Memory = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    moves: bool = True  # False: no step; neither the model nor the memory of the server rule changes
    reused: Floats | None = None  # by client: coefficient of its stored gradients, times their η_l ‖a_i‖₁


class Ask(Protocol):
    """Requests a rule may yield, made with the run's own local solver and model."""

    def learning_rates(self, clients: Ids) -> Floats:
        """Return η_l of each of these clients in this round; asks nobody."""

    def expected(self, clients: Ids) -> "Expect":
        """Ask the world how far these clients would get with this round's work, and how long it would take them."""

    def train(self, clients: Ids, uploads: bool = True) -> "Train":
        """Ask these clients to train from the round's model; without `uploads` not all of them send their rows."""

    def train_alone(self, client: int) -> "Train":
        """Ask a client for the whole local work of a run's first round, at its rate, whatever the fleet allows."""

    def train_on_server(self) -> "Train":
        """Ask for the same local procedure on the server's own samples; the answer has one row."""

    def losses(self, clients: Ids, batch_size: int | None = None, model: Tensor | None = None) -> "Probe":
        """Ask clients for their loss at a model; None is the round's model."""

    def gradients(self, clients: Ids) -> "Probe":
        """Ask clients for their full gradient at the round's model."""

    def losses_alone(self, clients: Ids, requirement: "Requirement", start: Tensor) -> "TrainAlone":
        """Ask clients to train a model alone from `start`, and for its loss on the samples it was trained on."""

    def score(self, models: Tensor, on: str = "server", client: int | None = None) -> "Score":
        """Ask for the loss of each of these models on the server's samples or on one client's hold-out."""


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
