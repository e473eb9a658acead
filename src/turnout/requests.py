"""What the round asks of the world, what the world asks of an engine, and what comes back. Plain values: no I/O.

    round → world   Census · Train: Dispatch, Collect · TrainAlone · Settle · Expect · Probe · Score · Evaluate · Record
    world → engine  Fit · Probe · Score · Evaluate · Predict · Distil

The world decides who is a member, who is up, how far each client gets and when it returns. The engine does arithmetic
only: these clients, this start, exactly so many steps.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.costs import Costs
from turnout.distillation import Distil, Distilled, Predict, Predicted
from turnout.drift import Blocks
from turnout.metrics import EVALUATED
from turnout.offset import Offset
from turnout.orders import Order
from turnout.progress import Progress
from turnout.protocols import Local
from turnout.requirement import TrainAlone
from turnout.row_table import RowSource, RowTable
from turnout.rows import Facts
from turnout.streams import Streams

T = TypeVar("T")
NOBODY: Ids = np.zeros(0, dtype=np.int64)


class Outcome(IntEnum):
    """How a client's job ended. Every job ends in exactly one of these."""

    COMPLETE = 0  # all the asked steps, and the update was used
    PARTIAL = 1  # fewer steps than were asked, and the update was used
    LATE = 2  # the update came after the round was closed
    LOST = 3  # nothing came back
    REJECTED = 4  # what came back failed a check; the reason is beside it
    AT_WORK = 5  # not an end: the client still works, and a later round collects its update


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """Ask who belongs to the federation, who of them is up, and what time it is."""

    round: int
    model: Tensor
    buffers: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The answer to Census."""

    members: Ids | None  # ascending; None: everyone, always
    up: Ids  # of the members, ascending
    sim_seconds: float = 0.0  # time on the world's clock
    seconds_per_step: Floats | None = None  # of every client's device, where a width rule needs it and the world knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Dispatch an order and collect everyone: what a filter or a selection rule yields."""

    order: Order

    @property
    def round(self) -> int:
        """The round it belongs to."""
        return self.order.round

    @property
    def clients(self) -> Ids:
        """Whom it asks."""
        return self.order.clients


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Hand out work. The answer is None."""

    order: Order
    sequence: Ids | None = None  # in which order clients start; None: all at once
    most_at_work: int | None = None  # with a sequence: how many may be at work at once

    @property
    def round(self) -> int:
        """The round it belongs to."""
        return self.order.round


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """Collect what comes back of the work handed out in this round or, with `first`, in any round."""

    order: Order  # as dispatched
    clients: Ids  # whose work is wanted, ascending
    steps: Ids  # local steps that each of them was asked for
    first: int | None = None  # None: wait for everyone; else for the first so many to return
    wants_rows: bool = False  # rows, not their weighted sum
    into: Tensor | None = None  # memory for at least as many rows, which the caller uses again from round to round

    @property
    def round(self) -> int:
        """The round it belongs to."""
        return self.order.round


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """The answer to Collect: who returned what by the time the collection was closed."""

    clients: Ids  # whose work came back in time, ascending
    steps: Ids  # how far each got, where the world knows it; −1 where only the client can say
    rounds: Ids  # the round in which each was handed its work
    work: Any  # a Trained, as it came: whoever made it is not trusted
    facts: Facts | None  # of the clients, where the world weighed them
    coefficients: Floats | None = None  # of the sum, where the world had one taken
    late: Ids = field(default_factory=lambda: NOBODY)  # returned after the round was closed
    sent: Ids = field(default_factory=lambda: NOBODY)  # clients that were really handed work, where not all were
    lost: Ids = field(default_factory=lambda: NOBODY)  # of those: clients known never to return
    rows_checked: bool = False  # the rows to remember lie in the world's own memory, and its sums told which are finite
    availability_prob: Floats | None = None  # how likely each of the clients was to be up, where the world knows it
    seconds: float = 0.0  # how long the server waited
    progress: Progress | None = None  # of everyone it is known of; None: the steps of those that returned are all


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Tell the clients whose updates were accepted to keep what they now remember; the others forget it."""

    order: Order
    facts: Facts  # of the accepted
    trained: "Trained"

    @property
    def round(self) -> int:
        """The round it belongs to."""
        return self.order.round


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The answer to Settle: the mean Σ_i p_i row_i of what all clients now remember."""

    shared: Tensor | None  # None: the solver has no use for a mean
    finite: bool = True  # whether every row that was kept is
    samples: int = 0  # per-sample gradients that clients computed for it
    gradients: int = 0  # per-sample gradients of what clients trained for themselves
    bytes_up: int = 0  # that clients sent beside updates
    bytes_down: int = 0  # that they received beside the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """Ask for Σ_i w_i row_i over what clients remember under a name."""

    round: int
    name: str
    weights: Floats  # by client id


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """The answer to Recall; None where the world cannot say."""

    total: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """Ask how far these clients would get, and how long the asked work would take them. No client is asked."""

    round: int
    clients: Ids
    steps: Ids  # asked of each
    local: Local
    model: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The answer to Expect; None where the world does not know."""

    steps: Ids | None = None
    seconds: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Train these clients, exactly so many steps each. The world asks this of an engine.

    Client i sends Δ_i = start − end. A proximal term pulls towards `model`, wherever the client starts.
    """

    round: int
    streams: Streams
    model: Tensor
    buffers: Tensor | None
    clients: Ids  # ascending, each once
    steps: Ids  # how many each does
    local: Local
    settings: Mapping[str, Floats]  # the solver's settings, one value per client
    coefficients: Floats | None  # given: return only Σ c_i Δ_i, reduced block by block; None: return the rows
    buffer_weights: Floats  # how clients' buffers are averaged
    wants_norms: bool = False  # return ‖Δ_i‖² too
    offset: Offset | None = None  # k_i, subtracted from every gradient of client i
    starts: RowSource | None = None  # where each client starts, by client id; None: all start from `model`
    buffer_starts: RowSource | None = None  # the buffers that each client starts from, by client id; None: `buffers`
    wants_buffers: bool = False  # return each client's buffers after the last step, one row per client
    kept: Mapping[str, RowTable] = field(default_factory=dict)  # solver state that clients kept, by the entry's name
    frozen: tuple[str, ...] = ()  # parameters that do not move, by name
    private: tuple[str, ...] = ()  # parameters whose change is not sent: it is zero in Δ_i
    wants_ends: tuple[str, ...] = ()  # parameters whose values after the last step are returned, one row per client
    purpose: str = "batches"  # of the random stream that mini-batches are drawn from
    into: Tensor | None = None  # memory for at least as many rows, which the caller uses again from round to round
    ends_into: Tensor | None = None  # the same for the values in `wants_ends`
    on_server: bool = False  # train one row on the server's own samples; `clients` is then [SERVER]
    cut: tuple[int, ...] | None = None  # train a slice with so many units in each group of units; None: the whole model
    scaled: bool = False  # with `cut`: outputs of cut layers are divided by the share of units that is there
    # with `cut`: a model starts with one factor per output, 0 or 1, by which outputs are multiplied in training
    masked: bool = False
    # with `cut`: the first units, so many in each group, are trained as well, on the predictions of the slice
    distil: tuple[int, ...] | None = None
    own_models: bool = False  # `starts` are what clients were sent: a proximal term pulls towards the client's own
    first_step: int = 0  # local steps that clients did before in this round: their mini-batches go on from there
    blocks: Blocks | None = None  # the time steps whose samples each client trains on; None: all that it has received

    @property
    def wants_changes(self) -> bool:
        """Whether anyone looks at Δ_i; False where values after the last step are all that anyone wants."""
        ends_alone = self.wants_ends and not self.wants_norms and self.offset is None
        return not ends_alone or self.coefficients is None or bool(self.coefficients.any())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The answer to Fit, and to Train once it was checked; entries are in the order of `clients`."""

    clients: Ids
    steps: Ids
    loss: Floats  # mean of the mini-batch losses over the client's local steps
    finite: Any  # bool per client: can its change be used? where rows come, they are looked at too
    reduced: Tensor | None = None  # Σ c_i Δ_i
    delta: Tensor | None = None  # rows
    extra: Tensor | None = None  # second rows, where the local solver sends them
    square_norms: Floats | None = None
    buffers: Tensor | None = None  # Σ w_i buffers_i
    next_rows: Tensor | None = None  # what the clients remember from here on, k_i + s_i Δ_i, one row per client
    next_sum: Tensor | None = None  # Σ p_i s_i Δ_i
    kept: Mapping[str, Tensor] = field(default_factory=dict)  # solver state after the last step: rows, by entry
    ends: Tensor | None = None  # values of the parameters in `wants_ends` after the last step: rows, in model order
    buffer_ends: Tensor | None = None  # buffers after the last step, where they are wanted: rows
    round: int | None = None  # which it answers; None: the one that was asked last
    num_examples: Ids | None = None  # what clients say they hold; None: they were not asked
    reasons: Mapping[int, str] = field(default_factory=dict)  # why a client's update cannot be used
    availability_prob: Floats | None = None  # how likely each client was to be up, where the world knows it
    asked: Ids | None = None  # everyone who was asked, whether an answer came or not
    seconds: float = 0.0  # how long the server waited for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Ask clients for a number (a loss) or a row (a gradient) at this model, without training."""

    round: int
    streams: Streams
    model: Tensor
    buffers: Tensor | None
    clients: Ids
    what: str  # "loss" | "gradient"
    batch_size: int | None = None  # None: all local samples; else one keyed mini-batch of min(batch_size, n_i)
    models: Tensor | None = None  # for losses: one model per client, in the order of `clients`; None: `model` for all
    blocks: Blocks | None = None  # with "loss": the time steps whose samples are used; the accuracy is wanted, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The answer to Probe, in the order of `clients`."""

    clients: Ids
    loss: Floats | None = None
    gradient: Tensor | None = None
    samples: int = 0  # samples looked at, for the cost ledger
    accuracy: Floats | None = None  # where blocks are asked for and the labels allow it
    unusable: Any = None  # bool per client: it gave no number, and the least that others gave stands for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Ask for the mean loss of several models on one small set."""

    round: int
    models: Tensor  # one row per model
    buffers: Tensor | None
    on: str = "server"  # "server": the server's samples; "client": one client's hold-out
    client: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """The answer to Score, one loss per model."""

    loss: Floats
    samples: int = 0  # samples looked at, for the cost ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Measure a model on the test set, and on every client's hold-out if asked."""

    round: int
    model: Tensor
    buffers: Tensor | None
    per_client: bool = False
    clients: Ids | None = None  # given: the test set is these clients' hold-outs put together
    metrics: tuple[str, ...] = EVALUATED  # what to measure, as far as the labels and the model's outputs allow
    cut: tuple[int, ...] | None = None  # the model is a slice with so many units in each group; None: the whole model


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The answer to Evaluate."""

    metrics: dict[str, float]  # by the metric's name
    client_accuracy: Floats | None = None  # by client id; NaN where a client has no hold-out
    client_loss: Floats | None = None
    personal: Mapping[str, Floats] = field(default_factory=dict)  # by measure, such as "personal loss": by client id
    client_models: Any = None  # after the last round: a ClientModels; None: everyone uses the shared model


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateEach:
    """Measure one model for each of these clients, on that client's hold-out."""

    round: int
    clients: Ids  # ascending, each with a hold-out
    models: Tensor  # one row per client
    buffers: Tensor | None
    own_buffers: Tensor | None = None  # one row per client; None: `buffers` for all
    metrics: tuple[str, ...] = EVALUATED
    cut: tuple[int, ...] | None = None  # the models are parts of the whole one, as in Fit


@dataclass(frozen=True, slots=True, kw_only=True)
class EachEvaluated:
    """The answer to EvaluateEach, in the order of `clients`."""

    loss: Floats
    accuracy: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One round, for the journal. Round 0 is the model before training."""

    round: int
    num_clients: int
    up: Ids
    asked: Ids  # clients asked, each once
    multiplicity: Ids
    answered: Ids  # clients whose answer was accepted
    asked_steps: Ids  # of those asked
    local_steps: Ids  # of those asked; 0 where nothing came
    coefficients: Floats  # of those asked; 0 where nothing was used
    losses: Floats  # of those asked; NaN where nothing came
    work: Floats = field(default_factory=lambda: np.zeros(0))  # of those asked: η_l ‖a_i‖₁; empty: the local steps
    outcomes: Ids = field(default_factory=lambda: NOBODY)  # of those asked: an Outcome each
    progress: Progress | None = None  # of those asked, whatever the server made of it; None: as `local_steps` says
    members: Ids | None = None  # who belongs in this round, ascending; None: everyone
    counted: Ids | None = None  # who is in the objective, ascending; None: everyone
    assignment: Ids | None = None  # by client: the model it trained, −1 for a client not asked; None: there is one
    kept: Ids | None = None  # whom the filter let through, ascending; None: everyone who is up
    reused: Floats | None = None  # by client: weight of its stored gradients in the step; None: nothing is stored
    late: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # answered after the round was closed
    rejected: dict[int, str] = field(default_factory=dict)  # client -> reason
    metrics: dict[str, float] = field(default_factory=dict)
    client_accuracy: Floats | None = None
    client_loss: Floats | None = None
    personal: Mapping[str, Floats] = field(default_factory=dict)  # measures of the clients' own models, by client id
    client_models: Any = None  # after the last round: a ClientModels; None: everyone uses the shared model
    costs: Costs = field(default_factory=Costs)
    events: tuple[str, ...] = ()  # what a reader should know of this round
    finished: bool = False  # the last round of the run
    step_kept: bool = True  # False: the server step was dropped, and clients forget what this round taught them
    state: Any = None  # what the run carries on from here; a checkpoint saves it


EngineRequest = Fit | Probe | Score | Evaluate | EvaluateEach | Predict | Distil
Request = Census | Train | TrainAlone | Dispatch | Collect | Settle | Recall | Expect | EngineRequest | Record
Answer = Trained | Probed | Scored | Evaluated | EachEvaluated | Predicted | Distilled | None
Steps = Generator[Request, Any, T]  # a rule that asks before it decides: yields requests, returns T
Reply = Steps[Any]  # makes the answer to one request; named here, for a name in a signature is looked up at every call
