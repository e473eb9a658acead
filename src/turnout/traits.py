"""Traits: what the core and other rules may know of a rule beyond its axis's methods.

A rule has a trait if it has an attribute of that name: a setting, a class attribute, a property or a method. Each
default below is what is assumed of a rule that does not have the attribute. Traits are read once, when a plan is made.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_type_hints

from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.drift import Drift
from turnout.errors import ConfigError, Problem
from turnout.protocols import Ask, Memory, Population, View
from turnout.requirement import Requirement
from turnout.rows import Facts, Rows
from turnout.settings import MismatchError, fitted, shown

T = TypeVar("T")
PopulationCheck = Callable[[Population], Iterator[Problem]]  # yields why a rule's settings do not suit these clients


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleForm:
    """The form of one sample, and how many outputs a model of it needs."""

    shape: tuple[int, ...]
    outputs: int  # one per class, or one per number of a target
    has_classes: bool = True  # targets are classes, not numbers
    is_index: bool = False  # its numbers are indices, such as characters, not measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTraits:
    """What is known of data before it is made, where its settings say it."""

    num_clients: Any = None  # number of clients
    clients: Any = None  # the same, as the setting of a generator or loader
    server_samples: Any = None  # number of samples at the server
    public_samples: Any = None  # number of inputs of the public set
    holdout: Any = None  # share of its samples that each client holds out
    sample_form: SampleForm | None = None  # of every sample; None: not known before the data is made
    known_drift: Callable[[], Drift] | None = None  # () → how samples change with time; None: they do not, or not known

    @property
    def known_clients(self) -> int | None:
        """The number of clients; None: not known."""
        count = self.clients if self.num_clients is None else self.num_clients
        return count if type(count) is int and count >= 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailabilityTraits:
    """Who is up."""

    needs_clock: bool = False  # depends on simulated time
    # the loss below which a model serves a client: the world measures every client's loss before it asks who is up, and
    # passes it in view.appeal; None: who is up does not depend on the model
    requires: Requirement | None = None
    # (clients, view) → how likely each of these clients is to be up in this round; None: not known
    probability: Callable[[Ids, View], Floats] | None = None
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTraits:
    """How much of the asked work gets done."""

    unit: Literal["steps", "epochs"] = "steps"  # what `done` is given and returns
    # (asked, clients, view) → whether the steps of each client are recorded, not extrapolated; None: no replay
    is_recorded: Callable[[Ids, Ids, View], Any] | None = None
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTraits:
    """How long things take."""

    displaces: bool = False  # one client's answer can keep another's out of the round
    has_deadline: bool = False  # a round ends at a time, whoever is still at work
    # (clients, model_bytes, view) → how fast each of these clients is; None: not known
    pace: Callable[[Ids, Any, View], Any] | None = None
    # (steps, clients, view) → whether the time of each client is recorded, not extrapolated; None: no replay
    is_recorded: Callable[[Ids, Ids, View], Any] | None = None
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipTraits:
    """Who belongs to the federation."""

    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteringTraits:
    """Which of those that are up may be asked."""

    keeps_everyone: bool = False  # it never leaves anybody out
    needs_one_model: bool = False  # it has clients train or score the one model
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionTraits:
    """Who is asked."""

    knows_inclusion_prob: bool = True  # every choice comes with its inclusion probabilities π_i
    replacement: bool = False  # a client may be drawn more than once
    # what is known of the draw whatever the data: a fixed number of clients, or an independent draw per client
    data_independent: Literal["fixed", "poisson"] | None = None
    represents_others: bool = False  # a client counts once for every client that it stands for
    is_biased_to_large_updates: bool = False  # only weights by inclusion probability undo the bias
    trains_clients: bool = False  # clients train before they are chosen, without what they remember
    needs_seconds: bool = False  # it needs to know how long clients take
    needs_one_model: bool = False  # it asks clients for losses or gradients at the one model
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortTraits:
    """How many local steps a client is asked for."""

    # (memory, view, loss, lr) → its new memory after a round with this mean training loss; None: it does not adapt
    observe: Callable[[Mapping[str, Any], View, float, float], Memory] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraits:
    """What a client does."""

    # (memory, view, loss) → its new memory after a round with this mean training loss; None: it does not adapt
    observe: Callable[[Mapping[str, Any], View, float], Memory] | None = None
    lr: float = 1.0  # local learning rate, before any schedule
    preconditioned: bool = False  # every coordinate has its own step size
    correction: Literal["none", "local", "joint"] = "none"  # how updates are divided by the preconditioner
    counts_steps: bool = False  # work is asked for in local steps, not in epochs
    work_is_linear: bool = True  # the update is a weighted sum of gradients, with the weights that local_work adds up
    has_inner_solution: bool = False  # its parameters end at a model of the client's own, not at what is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalTraits:
    """What a client keeps for itself."""

    # (layout) → names of the parameters that stay at the client and are not sent; None: all are sent
    kept_names: Callable[[Any], tuple[str, ...]] | None = None
    strength: float = 0.0  # of the pull of personal steps towards the shared model
    lr: float | None = None  # learning rate of personal steps; None: the local learning rate
    needs_inner_solution: bool = False  # it reports what the local solver finds on its way
    repeats_shared_steps: bool = False  # it does the shared steps again beside the personal ones, as plain SGD
    keeps_statistics: bool = False  # running statistics of what a client keeps are the client's own
    shares_whole_model: bool = True  # False: the shared model has untrained parameters where clients keep their own
    has_shared_model: bool = True  # False: clients have only models of their own, which alone are measured
    trains_members: bool = False  # clients' own models may be members of a family, of different architectures
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthTraits:
    """How much of the model a client trains."""

    known_rates: tuple[float, ...] = ()  # every rate that a client may have; (): not known before the round
    usable_rates: tuple[float, ...] = ()  # rates below 1 whose part of the model is used, and measured, by itself
    needs_speed: bool = False  # rates follow from the speed of devices
    scaler: bool = False  # outputs of cut layers are divided by the share of units that is there, in training
    distil: bool = False  # with step_rates: narrower steps are trained on the predictions of the client's own width
    mask_labels: bool = False  # the logits of labels that a client does not hold are 0 in training
    # (clients, rates, steps, view) → the rate of each client at each local step, up to its own; None: its own at all
    step_rates: Callable[[Ids, Floats, int, View], Floats] | None = None
    # (clients, sizes of the models, view) → the number of each client's model of a family; None: clients train parts of
    # one model
    members_of: Callable[[Ids, tuple[int, ...], View], Ids] | None = None
    # (number of models) → why the rule's settings do not suit a family of so many; None: it suits any
    family_problems: Callable[[int], Iterator[Problem]] | None = None
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentTraits:
    """Which of several models a client trains."""

    # how the models are before the first round: drawn independently of each other, or all like the first
    initial: Literal["independent", "equal"] = "independent"
    is_fixed: bool = False  # a client trains the same model in every round
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Privacy:
    """What a guarantee of differential privacy assumes."""

    sampling: Literal["none", "fixed", "poisson"]
    cohort_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationTraits:
    """How answers combine: by `combine`, which is given rows, or by `coefficients`, which need only sums."""

    combine: Callable[[Rows, Memory, View, Ask], Any] | None = None
    coefficients: Callable[[Facts], Floats] | None = None
    # (anyone_up) → whether it steps in a round in which no client answered; None: it never does
    steps_without_answers: Callable[[bool], bool] | None = None
    weighting: str | None = None  # how weights correct for client sampling, as in FedAvg
    is_weighted_sum: bool = True  # the direction is Σ c_i Δ_i with the coefficients that it says
    needs_everyone: bool = False  # its coefficients are right only if all available clients are asked
    needs_inverse_rows: bool = False  # it needs 1/C_i beside every update
    # it divides updates by the client's work: all of them, or those that are incomplete
    divides_by_work: Literal["never", "incomplete", "always"] = "never"
    needs_one_model: bool = False  # it stores updates of one model, or compares them with the server's own
    trains_server_model: bool = False  # it trains the server's model of a family from the models of the clients
    needs_alike_last_layers: bool = False  # with that: the last layers of all models must have one shape
    least_cohort_size: int = 1  # draws that its guarantee needs in a round
    requires: Requirement | None = None  # the loss that clients require of the model; None: it does not depend on one
    privacy: Privacy | None = None
    population_problems: PopulationCheck | None = None

    @property
    def is_rowwise(self) -> bool:
        """Whether it needs the rows themselves."""
        return self.combine is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTraits:
    """How the model moves."""

    needs_weighted_sum: bool = False  # it needs a direction that is a weighted sum of the updates
    subtracts_step: bool = False  # the new model is x − u: a rule may step to a model that it has found


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackTraits:
    """What malicious clients do."""

    forge: Callable[[Any], Tensor] | None = None  # (what attackers see) → the updates they send; None: honest ones
    relabel: Callable[[Tensor, int], Tensor] | None = None  # (labels, num_classes) → their labels; None: true ones
    relabels: bool = True  # with relabel: labels are replaced
    colludes: bool = False  # an attacker's update depends on the updates of other clients
    population_problems: PopulationCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """The traits of every rule of a plan, by axis; of a rule that is left out, the defaults."""

    availability: AvailabilityTraits
    work: WorkTraits
    clock: ClockTraits
    membership: MembershipTraits
    filtering: FilteringTraits
    selection: SelectionTraits
    local: LocalTraits
    personal: PersonalTraits
    width: WidthTraits
    assignment: AssignmentTraits
    aggregation: AggregationTraits
    server: ServerTraits
    attack: AttackTraits

    @classmethod
    def of(cls, rules: Mapping[str, object]) -> "Traits":
        """Return the traits of these rules, given by axis."""
        return cls(**{axis: traits_of(kind, rules[axis]) for axis, kind in _hints(cast(Any, cls)).items()})


def traits_of(kind: type[T], rule: object) -> T:
    """Return the traits of one rule; raise ConfigError for one of a wrong type."""
    values = {}
    for name, hint in _hints(cast(Any, kind)).items():
        if rule is not None and hasattr(rule, name):
            try:
                values[name] = fitted(hint, getattr(rule, name))
            except MismatchError as error:
                raise ConfigError(
                    f"{type(rule).__name__} needs {name} {error.need}; got {shown(error.got)}. "
                    f"See turnout.traits.{kind.__name__} for what it means."
                ) from None
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in fields(kind)}
