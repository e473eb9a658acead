"""Rules of one's own: what a class must have to be a rule, and what is assumed where it leaves something out.

A rule is any class with its axis's method. What else its protocol in `turnout.protocols` declares has a default here,
or must be there. A plan completes its rules once: a rule that has everything stays as it is.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, cast, get_args

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.axes import AXES, at
from turnout.errors import ConfigError, Problem
from turnout.learned import Learned
from turnout.protocols import Batching, Memory, View


class SelectionDefaults:
    """A selection with only `choose`."""

    cohort_size: ClassVar[None] = None  # how many it draws is not known beforehand


class ClockDefaults:
    """A clock with only `run`."""

    idle_seconds: ClassVar[float] = 0.0  # a round with nobody to ask takes no time

    def seconds(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Floats:
        """Return how long a round of each client alone takes."""
        clock: Any = self
        sent = np.broadcast_to(model_bytes, len(clients)).tolist()
        alone = [clock.run(clients[i : i + 1], steps[i : i + 1], sent[i], view) for i in range(len(clients))]
        return np.array([timing.round_seconds for timing in alone], dtype=np.float64)


class AssistDefaults:
    """Server rounds with only `takes` and `lr`."""

    steps: ClassVar[int] = 1
    batch_size: ClassVar[None] = None  # all samples that the server has


class ServerDefaults:
    """A server rule with only `advance`."""

    wants_norms: ClassVar[bool] = False


class LocalDefaults:
    """A local solver with only `update`: one epoch of full batches, nothing kept between steps or rounds."""

    lr: ClassVar[float] = 1.0  # the solver has no learning rate, or applies its own
    batch_size: ClassVar[None] = None
    batches: ClassVar[Batching] = "shuffled"
    client_state: ClassVar[None] = None
    keeps: ClassVar[tuple[str, ...]] = ()
    cycle: ClassVar[tuple[int, ...]] = (0,)  # every step has a mini-batch of its own

    @property
    def features(self) -> frozenset[str]:
        """The rule itself: only rows of the same rule are trained together."""
        return frozenset({f"rule {self!r}"})

    def asked(self, clients: Ids, view: View) -> Ids:
        """Return one epoch."""
        solver: Any = self
        sizes = view.population.sizes[clients]
        if solver.batch_size is None or solver.batches == "full":
            return np.ones(len(clients), dtype=np.int64)
        return np.asarray(-(-sizes // solver.batch_size))

    def settings(self, clients: Ids, view: View) -> dict[str, Floats]:
        """Return the learning rate."""
        return {"lr": np.full(len(clients), self.lr, dtype=np.float64)}

    def local_work(self, steps: Ids, settings: Mapping[str, Floats]) -> Floats:
        """Return the number of steps."""
        return steps.astype(np.float64)

    def begin(self, params: Sequence[Tensor]) -> list[Memory]:
        """Return an empty state for each parameter."""
        return [{} for _ in params]

    def finish(self, delta: Tensor, state: Memory) -> tuple[Tensor, None]:
        """Return the update unchanged."""
        return delta, None


class PersonalDefaults:
    """A personal rule with only `train` or only `models`."""

    def train(self, here: Any, fit: Any) -> Any:
        """Train the shared model alone, and keep nothing."""
        return Learned(sent=(yield fit))

    def models(self, here: Any) -> Any:
        """Return the rows that clients keep as "model"."""
        return {"personal": here.rows().take(here.clients)}


class WidthDefaults:
    """A width rule with only `units`."""

    def rates_of(self, clients: Ids, view: View) -> Floats:
        """Return rate 1: which units a client trains is for `units` to say."""
        return np.ones(len(clients))


DEFAULTS: dict[str, type] = {
    "width": WidthDefaults,
    "personal": PersonalDefaults,
    "selection": SelectionDefaults,
    "clock": ClockDefaults,
    "assist": AssistDefaults,
    "server": ServerDefaults,
    "local": LocalDefaults,
}


def has_method(axis: str, rule: object) -> bool:
    """Whether an object has the method that makes a class a rule of an axis."""
    return any(callable(getattr(rule, method, None)) for method in AXES[axis].methods)


def rule_problems(axis: str, rule: object) -> Iterator[Problem]:
    """Yield what a rule lacks of its axis's protocol, or has in another form."""
    section, name = AXES[axis].section, type(rule).__name__
    if not has_method(axis, rule):
        needs = " or ".join(AXES[axis].methods)
        message = f"{section} needs a rule with the method {needs}; got {rule!r:.80}. See `turnout ls {axis}`."
        yield Problem(message, section)
        return
    protocol, defaults = _protocol(axis, rule), _defaults(axis, rule)
    missing = [member for member in _members(protocol) if not hasattr(rule, member) and not hasattr(defaults, member)]
    if missing:
        yield Problem(
            f"{name} on {section} needs {' and '.join(missing)} beside {' or '.join(AXES[axis].methods)}. "
            f"See {protocol.__module__}.{protocol.__name__} for what each is.",
            section,
        )
    for member, declared in _members(protocol).items():
        if hasattr(rule, member) and (text := _difference(declared, getattr(rule, member))):
            yield Problem(f"{name} on {section}: {member} {text}", section)


def _difference(declared: Any, own: Any) -> str | None:
    """Return how a rule's attribute differs from the protocol's; None if it does not."""
    if isinstance(declared, property):
        return "must be a value; got a method. Write @property above it." if inspect.ismethod(own) else None
    if not callable(own):
        return f"must be a method; got {own!r:.40}. Write def {declared.__name__}(self, …)."
    needs = list(inspect.signature(declared).parameters)[1:]
    try:
        takes = inspect.signature(own)
    except (ValueError, TypeError):  # one that does not tell
        return None
    try:
        takes.bind(*needs)
    except TypeError:
        return f"must take ({', '.join(needs)}); it takes {takes}. Change its arguments."
    return None


def _protocol(axis: str, rule: object) -> Any:
    """Return the protocol that a rule follows; of several, the first whose methods it has, from the last on."""
    choices = _protocols(axis)
    return next((each for each in reversed(choices) if all(hasattr(rule, n) for n in _members(each))), choices[0])


def _protocols(axis: str) -> tuple[Any, ...]:
    protocol = at(AXES[axis].protocol)
    return get_args(protocol) or (protocol,)


def _defaults(axis: str, rule: object) -> type | None:
    """Return the defaults of the protocol that a rule follows; of several protocols, the first has them."""
    return DEFAULTS.get(axis) if _protocol(axis, rule) is _protocols(axis)[0] else None


@cache
def _members(protocol: Any) -> dict[str, Any]:
    """Return the public methods and properties that a protocol declares."""
    return {name: member for name, member in vars(protocol).items() if not name.startswith("_")}


def completed(axis: str, rule: Any) -> Any:
    """Return a rule that has everything its protocol declares; None, and a rule that has it already, stay as they are.

    Raises:
        ConfigError: something is missing that has no default.
    """
    if rule is None:
        return None
    found = list(rule_problems(axis, rule))
    if found:
        raise ConfigError.of(found)
    own = {name: hasattr(rule, name) for name in (*_members(_protocol(axis, rule)), *_public(_defaults(axis, rule)))}
    if all(own.values()):
        return rule
    return _completed_class(axis, cast(Any, type(rule)), tuple(name for name, has in own.items() if has))(rule)


def _public(owner: type | None) -> list[str]:
    return [] if owner is None else [name for name in vars(owner) if not name.startswith("_")]


class _Completed:
    """A rule with defaults for what it leaves out; it has the name of the rule's class."""

    axis: ClassVar[str]

    def __init__(self, rule: Any) -> None:
        self.rule = rule

    def __getattr__(self, name: str) -> Any:
        """Return what the rule has beyond its protocol, such as a trait: a plan may be made again of this rule."""
        if name.startswith("_") or name == "rule":  # while it is made or copied
            raise AttributeError(name)
        return getattr(self.rule, name)

    def __repr__(self) -> str:
        return repr(self.rule)

    def __reduce__(self) -> Any:
        return completed, (self.axis, self.rule)


@cache
def _completed_class(axis: str, kind: Any, own: tuple[str, ...]) -> type[_Completed]:
    """Return a class whose instances pass these attributes on to the rule, and default the rest."""
    passed = {name: property(lambda self, name=name: getattr(self.rule, name)) for name in own}  # type: ignore[misc]
    names = {"axis": axis, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (_Completed, DEFAULTS[axis]), {**passed, **names})
