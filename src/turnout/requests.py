"""What the coordinator asks of an engine, and what it gets back. Plain values: no behaviour, no I/O."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.metrics import EVALUATED
from turnout.protocols import Local
from turnout.row_table import RowTable
from turnout.streams import Streams

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """Train these clients from this model."""

    round: int
    streams: Streams  # each client's mini-batches are keyed by (seed, "batches", round, client)
    model: Tensor
    buffers: Tensor | None
    clients: Ids  # ascending, each once
    steps: Ids  # how many each does
    local: Local
    settings: dict[str, Floats]  # the solver's settings, one value per client
    coefficients: Floats | None  # given: return only Σ c_i Δ_i, reduced block by block; None: return the rows
    buffer_weights: Floats  # how clients' buffers are averaged
    wants_norms: bool = False  # return ‖Δ_i‖² too
    controls: "Controls | None" = None  # k_i, taken off every gradient of client i
    into: Tensor | None = None  # memory for at least as many rows, which the caller uses again from round to round
    uploads: bool = True  # whether every client sends its row: a rule may look at norms first, and few send
    on_server: bool = False  # train one row on the server's own samples; `clients` is then [SERVER]
    sent: int = 0  # where a rule asks and not the round: how many models went out, to those who never answer too
    sim_seconds: float = 0.0  # and how long it takes by the fleet's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """Control variates k_i = c_i − c, worked out where they are used: a cohort's would take as much as its rows."""

    common: Tensor  # c = Σ_i p_i c_i over everyone who counts
    table: RowTable  # c_i
    scale: Floats | None = None  # s_i, given: return the next controls k_i + s_i Δ_i, too
    weights: Floats | None = None  # p_i, given with the scale: and Σ p_i s_i Δ_i

    def columns(self, clients: Ids, start: int, out: Tensor) -> Tensor:
        """Write a part of these clients' k_i, from this column on, to `out`, and return it."""
        stop, view = start + out.shape[1], self.table.run_of(clients)
        own = self.table.columns(clients, start, out) if view is None else view[:, start:stop]
        return torch.sub(own, self.common[start:stop], out=out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """The answer to Train; entries are in the order of `clients`."""

    clients: Ids
    steps: Ids
    loss: Floats  # mean of the mini-batch losses over the client's local steps
    finite: Any  # bool per client: can its change be used? where rows come, they are looked at too
    reduced: Tensor | None = None  # Σ c_i Δ_i
    delta: Tensor | None = None  # rows
    extra: Tensor | None = None  # second rows, where the local solver sends them
    square_norms: Floats | None = None
    buffers: Tensor | None = None  # Σ w_i buffers_i
    controls: Tensor | None = None  # the next controls, one row per client
    control_sum: Tensor | None = None  # Σ p_i s_i Δ_i
    round: int | None = None  # which it answers; None: the one that was asked last
    num_examples: Ids | None = None  # what clients say they hold; None: they were not asked
    reasons: Mapping[int, str] = field(default_factory=dict)  # why a client's answer cannot be used; by the coordinator


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """The answer to Probe, in the order of `clients`."""

    clients: Ids
    loss: Floats | None = None
    gradient: Tensor | None = None
    samples: int = 0  # samples looked at, for the cost ledger


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The answer to Evaluate."""

    metrics: dict[str, float]  # by the metric's name
    client_accuracy: Floats | None = None  # by client id; NaN where a client has no hold-out
    client_loss: Floats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a round cost."""

    bytes_down: int = 0
    bytes_up: int = 0
    gradient_evaluations: int = 0  # per-sample gradients
    probe_evaluations: int = 0  # per-sample losses or gradients a rule asked for besides training
    sim_seconds: float = 0.0

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(
            bytes_down=self.bytes_down + other.bytes_down,
            bytes_up=self.bytes_up + other.bytes_up,
            gradient_evaluations=self.gradient_evaluations + other.gradient_evaluations,
            probe_evaluations=self.probe_evaluations + other.probe_evaluations,
            sim_seconds=self.sim_seconds + other.sim_seconds,
        )


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
    late: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # answered after the round was closed
    rejected: dict[int, str] = field(default_factory=dict)  # client -> reason
    metrics: dict[str, float] = field(default_factory=dict)
    client_accuracy: Floats | None = None
    costs: Costs = field(default_factory=Costs)
    events: tuple[str, ...] = ()  # what a reader should know of this round
    finished: bool = False  # the last round of the run
    model: Tensor | None = None  # the model after the round


Request = Train | Probe | Score | Evaluate | Record
Answer = Trained | Probed | Scored | Evaluated | None
Steps = Generator[Request, Any, T]  # a rule that asks before it decides: yields requests, returns T
