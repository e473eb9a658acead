"""The plan of one run: one choice per axis. And its state: one value that can be saved and restored."""

import sys
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.assignment.assigned import Assignment
from turnout.attacks.attack import Attack
from turnout.axes import FLEET_AXES, PLAN_RULES, default_rule
from turnout.coordinator.turnover import Turnover
from turnout.errors import ConfigError
from turnout.fleet import Fleet
from turnout.metrics import EVALUATED
from turnout.models.layout import Layout
from turnout.models.members import Members
from turnout.models.slices import Slices
from turnout.own_rules import completed
from turnout.personal.at_clients import Personal
from turnout.protocols import (
    Aggregation,
    Assist,
    Asynchrony,
    Filtering,
    Local,
    Memory,
    Population,
    Selection,
    Server,
)
from turnout.row_table import DEFAULT_BUDGET, new_rows
from turnout.settings import Count, CountOrZero, NonNegative, Positive, rule
from turnout.traits import Traits
from turnout.width.rates import AnyWidth

MIB = 1 << 20


@rule("evaluate")
class Cadence:
    """When the model is measured, and by what."""

    every: Count = 1  # rounds between measurements on the test set; the last round is always measured
    clients_every: CountOrZero = 0  # rounds between measurements on clients' hold-outs; 0 is only after the last round
    metrics: tuple[Literal["loss", "accuracy"], ...] = ()  # ("accuracy",) insists on it; (): where labels allow it

    def __post_init__(self) -> None:
        if self.clients_every and "accuracy" not in self.may_measure:
            raise ConfigError(
                f"evaluate.clients_every measures the accuracy of every client, and evaluate.metrics = "
                f'{list(self.metrics)} leaves it out. Add "accuracy" to evaluate.metrics, or set '
                "evaluate.clients_every to 0.",
                setting="evaluate.metrics",
            )

    @property
    def may_measure(self) -> tuple[str, ...]:
        """The metrics that are measured where the data and the model allow it; the loss always is."""
        return tuple(name for name in EVALUATED if name == "loss" or not self.metrics or name in self.metrics)

    def is_due(self, round: int, rounds: int) -> bool:
        """Whether the test set is due after this round."""
        return round == rounds or round % self.every == 0

    def clients_due(self, round: int, rounds: int) -> bool:
        """Whether the hold-outs are due after this round."""
        return round == rounds or (self.clients_every > 0 and round > 0 and round % self.clients_every == 0)


@rule("trust")
class Trust:
    """What happens to answers that cannot be used, and to changes that are too long."""

    policy: Literal["reject", "clip", "stop"] = "reject"  # leave such an answer out, shorten it, or end the run
    max_norm: Positive | None = None  # ‖Δ_i‖ beyond which a change is not believed; None: any finite one is

    def __post_init__(self) -> None:
        if self.policy == "clip" and self.max_norm is None:
            raise ConfigError(
                'trust.policy = "clip" needs a length to clip to. Set trust.max_norm.', setting="trust.max_norm"
            )


@rule("memory")
class MemoryLimit:
    """How much room what has one row per client may take: control variates, kept solver state, FedVARP, own models."""

    # largest table that is kept in memory, in MiB, 0 or more; a larger one is kept in a temporary file, which is slower
    table_mib: NonNegative = DEFAULT_BUDGET / MIB

    # largest size of the clients' own models that are stored after the run, in MiB, 0 or more; larger ones are not
    own_models_mib: NonNegative = 256.0

    @property
    def table_bytes(self) -> int:
        """The same, in bytes."""
        return int(self.table_mib * MIB)

    @property
    def own_models_bytes(self) -> int:
        """The size of the own models that are stored, in bytes."""
        return int(self.own_models_mib * MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One choice per axis: this is the algorithm."""

    local: Local
    rounds: int
    fleet: Fleet = field(default_factory=Fleet)
    filtering: Filtering = field(default_factory=default_rule("filtering"))
    selection: Selection = field(default_factory=default_rule("selection"))
    aggregation: Aggregation = field(default_factory=default_rule("aggregation"))
    server: Server = field(default_factory=default_rule("server"))
    personal: Personal | None = None  # none: clients keep nothing and use the shared model
    width: AnyWidth | None = None  # none: every client trains the whole model
    assignment: Assignment | None = None  # none: there is one model
    assist: Assist | None = None  # none: every round is the clients'
    asynchrony: Asynchrony | None = None  # none: the server waits for everyone it asked
    attack: Attack | None = None  # none: everyone is honest
    turnover: Turnover = field(default_factory=Turnover)
    trust: Trust = field(default_factory=Trust)
    evaluate: Cadence = field(default_factory=Cadence)
    memory: MemoryLimit = field(default_factory=MemoryLimit)

    layout: Layout | None = field(default=None, repr=False)  # of the model, for rules that name its parameters
    slices: Slices | Members | None = field(default=None, repr=False, compare=False)  # of the model, for a width rule

    # what is known of the rules beyond their methods; read once, here
    traits: Traits = field(init=False, repr=False, compare=False)
    num_private: int = field(init=False, default=0, repr=False, compare=False)  # parameters that are not sent

    def __post_init__(self) -> None:
        given = self.rules()
        object.__setattr__(self, "traits", Traits.of(given))
        changed = {axis: whole for axis, rule in given.items() if (whole := completed(axis, rule)) is not rule}
        for section in changed.keys() & set(PLAN_RULES):
            object.__setattr__(self, section, changed[section])
        if fleet := {axis: rule for axis, rule in changed.items() if axis in FLEET_AXES}:
            object.__setattr__(self, "fleet", replace(self.fleet, **fleet))
        kept_names = self.traits.personal.kept_names
        if kept_names is not None and self.layout is not None:
            object.__setattr__(self, "num_private", len(self.layout.columns(kept_names(self.layout))))
        if self.rounds < 1:
            raise ConfigError(f"A study needs rounds >= 1; got {self.rounds}. Change rounds.", setting="rounds")

    def rules(self) -> dict[str, Any]:
        """Return the rule of each axis; None where there is none."""
        fleet = {axis: getattr(self.fleet, axis) for axis in FLEET_AXES}
        return fleet | {section: getattr(self, section) for section in PLAN_RULES}

    def sent_bytes(self, model: Tensor) -> int:
        """Return the bytes of a model that travel: without what stays at the client."""
        return (model.numel() - self.num_private) * model.element_size()


REFERENCES = 2  # to an array that only a tuple holds: the tuple's, and that of the call that counts them


class SpareLosses(NamedTuple):
    """The last losses of the round before, which may be used again."""

    array: Floats
    changed: Ids  # clients whose entries are newer in the array that followed
    following: Floats


@dataclass(slots=True, kw_only=True)
class State:
    """Everything a run carries from one round to the next. Randomness is keyed, so it is not here."""

    model: Tensor  # with several models, the first of them
    buffers: Tensor | None = None
    measured: Tensor | None = None  # what is measured where it is not the model: FedExP's mean of two iterates
    models: Tensor | None = None  # one row per model; None: there is one
    measured_models: Tensor | None = None  # with several models: what is measured, one row per model
    round: int = 0  # rounds completed
    server: Memory = field(default_factory=dict)
    aggregation: Memory = field(default_factory=dict)
    selection: Memory = field(default_factory=dict)
    filtering: Memory = field(default_factory=dict)
    local: Memory = field(default_factory=dict)
    members: Memory = field(default_factory=dict)
    assignment: Memory = field(default_factory=dict)
    jobs: Memory = field(default_factory=dict)  # handed out and not ended, where the server does not wait
    world: Memory = field(default_factory=dict)  # the world's own part: its clock, client store, work on its way
    restart: int = 0  # the round after which learning-rate schedules count again
    last_losses: Floats = field(default_factory=lambda: np.zeros(0))
    rows: Tensor | None = field(default=None, init=False, repr=False)  # memory for a cohort's changes

    spare: "SpareLosses | None" = field(default=None, init=False, repr=False)

    def hear(self, clients: Ids, losses: Floats) -> None:
        """Take down the losses of some clients; an array of last losses that anybody holds stays as it is.

        With 15 million clients a copy took a quarter of the round. Where nobody holds the array of the round before, it
        is brought up to date and used again.
        """
        held, spare = self.last_losses, self.spare
        self.spare = None
        if spare is not None and spare.following is held and sys.getrefcount(spare.array) == REFERENCES:
            array = spare.array
            array[spare.changed] = held[spare.changed]
        else:
            array = held.copy()
        array[clients] = losses
        self.last_losses, self.spare = array, SpareLosses(held, clients, array)

    def row_buffer(self, count: int) -> Tensor:
        """Return memory for so many rows, the same each round: fresh memory is slow to touch."""
        if self.rows is None or len(self.rows) < count:
            self.rows = new_rows(count, self.model.numel(), self.model.dtype, self.model.device)
        return self.rows[:count]

    @classmethod
    def start(
        cls, model: Tensor, population: Population, buffers: Tensor | None = None, models: Tensor | None = None
    ) -> "State":
        """Return the state before the first round; of several models, the first is `model`."""
        losses = np.full(population.num_clients, np.nan)
        return cls(model=model, buffers=buffers, models=models, last_losses=losses)
