"""Settings: `@rule` makes a frozen dataclass whose settings are checked against their type hints when one is made.

A study file and Python are held to the same hints with the same messages. A whole number is accepted where a number is
needed; true and false are not numbers; NaN is no number; numpy's scalars become Python's, lists become tuples.

    lr: Positive                                                   a number above 0
    batch_size: Count | None = None                               a whole number from 1 up, or none
    ties: Annotated[bool, When(mode="deterministic")] = False     refused where another setting makes it void

A class that is no `@rule` is not checked.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import numpy as np

from turnout.errors import ConfigError
from turnout.shorthand import as_setting

T = TypeVar("T")
GIVEN: Any = object()  # in When: any value but none and zero
LONGEST = 60  # characters of a value in a message
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: '"none"'}
CALLABLE = get_origin(Callable[..., Any])
LISTS = (tuple, list, Sequence)


class MismatchError(Exception):
    """A value that a setting cannot have: what is needed in words, and what came."""

    def __init__(self, need: str, got: Any, *, is_range: bool = False) -> None:
        super().__init__(need)
        self.need, self.got, self.is_range = need, got, is_range

    def told(self, rule: str, setting: str, place: str) -> str:
        """Return the message for a setting of a rule; `place` is its name in a study file."""
        return f"{rule} needs {setting} {self.need}; got {shown(self.got)}. Change {place}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds of a number. A ceiling guards against overflow, and is named only where a value exceeds it."""

    least: float = -math.inf
    above: float | None = None
    most: float | None = None
    below: float | None = None
    ceiling: float = 1e12

    def check(self, value: float) -> None:
        """Raise MismatchError if the value lies outside."""
        if value < self.least or (self.above is not None and value <= self.above):
            raise MismatchError(self.words, value, is_range=True)
        if (self.most is not None and value > self.most) or (self.below is not None and value >= self.below):
            raise MismatchError(self.words, value, is_range=True)
        if not -self.ceiling <= value <= self.ceiling:
            bound = f"<= {_digits(self.ceiling)}" if value > 0 else f">= -{_digits(self.ceiling)}"
            raise MismatchError(bound, value, is_range=True)

    @property
    def words(self) -> str:
        """The bounds: `>= 1`, `> 0` or `in [0, 1)`; empty if there are none."""
        low = self.least if self.above is None else self.above
        high = self.most if self.below is None else self.below
        if high is None and low == -math.inf:
            return ""
        if high is None:
            return f"{'>=' if self.above is None else '>'} {_digits(low)}"
        opens, closes = "[" if self.above is None else "(", "]" if self.below is None else ")"
        return f"in {opens}{_digits(low)}, {_digits(high)}{closes}"


class When:
    """Where a setting has an effect: for each other setting the value, or the values, that it goes with.

    `None` stands for a setting that is left out, `GIVEN` for one that is set to anything but none or zero.
    """

    def __init__(self, **needs: Any) -> None:
        self.needs = {name: need if isinstance(need, tuple) else (need,) for name, need in needs.items()}

    def unmet(self, values: Mapping[str, Any]) -> str | None:
        """Return the first setting that makes this one void."""
        for name, allowed in self.needs.items():
            value = values[name]
            if not (bool(value) if GIVEN in allowed else any(_is_same(value, choice) for choice in allowed)):
                return name
        return None

    def told(self, rule: str, section: str, setting: str, other: str, values: Mapping[str, Any]) -> str:
        """Return the message for a setting that the other one makes void."""
        allowed, place, both = self.needs[other], f"{section}.{setting}", f"{section}.{other}"
        choices = f"{other} = {' or '.join(map(shown, allowed))}"
        if allowed == (None,):
            needed, advice = f"without {other}", f"Drop {place} or {both}."
        elif allowed == (GIVEN,):
            needed, advice = f"with {other}", f"Drop {place}, or give {both} a value."
        else:
            needed, advice = f"with {choices}", f"Drop {place}, or set {section}.{choices}."
        got = f"{setting} = {shown(values[setting])} and {other} = {shown(values[other])}"
        return f"{rule} uses {setting} only {needed}; got {got}. {advice}"


MOST_CLIENTS = 10**8
MOST_STEPS = 10**6  # the batches of all steps of a client lie in memory together

Count = Annotated[int, Range(least=1, ceiling=1e9)]
CountOrZero = Annotated[int, Range(least=0, ceiling=1e9)]
Clients = Annotated[int, Range(least=1, ceiling=MOST_CLIENTS)]
ClientId = Annotated[int, Range(least=0, ceiling=MOST_CLIENTS)]
StepCount = Annotated[int, Range(least=1, ceiling=MOST_STEPS)]
Width = Annotated[int, Range(least=1, ceiling=1e8)]  # units of a layer, coordinates
Number = Annotated[float, Range()]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(least=0)]
Accumulator = Annotated[float, Range(least=0, ceiling=1e30)]  # the start of a mean of squares
Share = Annotated[float, Range(least=0, most=1)]  # a part of a whole, or a probability
PositiveShare = Annotated[float, Range(above=0, most=1)]
ShareBelowOne = Annotated[float, Range(least=0, below=1)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def rule(section: str) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass that refuses settings it cannot have, with one ConfigError.

    Args:
        section: where a study file has its settings, for messages: "local", "fleet.clock".
    """

    def made(plain: type[T]) -> type[T]:
        found: Any = dataclass(frozen=True, slots=True, kw_only=True)(plain)
        build = found.__init__

        @wraps(build)
        def checked_init(self: Any, **given: Any) -> None:
            build(self, **(checked(found, given, type(self).__name__, section) if given else given))

        found.__init__ = checked_init
        return found  # type: ignore[no-any-return]

    return made


def checked(rule: type, given: Mapping[str, Any], called: str, section: str) -> dict[str, Any]:
    """Return the settings given, each as its hint asks; raise ConfigError for the first that cannot be."""
    hints, defaults, conditions = _facts(rule)
    values = {name: value for name, value in given.items() if name not in hints}  # left to Python to refuse
    for name, value in given.items():
        if name in hints:
            try:
                values[name] = fitted(hints[name], as_setting(name, members(hints[name]), value))
            except MismatchError as error:
                raise ConfigError(error.told(called, name, f"{section}.{name}")) from None
    for name, when in conditions.items():
        if name not in values or _is_same(values[name], defaults[name]):
            continue
        everything = {**defaults, **values}
        if other := when.unmet(everything):
            raise ConfigError(when.told(called, section, name, other, everything))
    return values


@cache
def _facts(rule: type) -> tuple[dict[str, Any], dict[str, Any], dict[str, When]]:
    """Return a rule's hints, defaults and conditions by setting; read at first use, so that imports stay quick."""
    written = get_type_hints(rule, include_extras=True)
    hints = {entry.name: written[entry.name] for entry in fields(rule) if entry.init}
    defaults = {
        entry.name: entry.default if entry.default_factory is MISSING else entry.default_factory()
        for entry in fields(rule)
        if entry.init
    }
    conditions = {
        name: note
        for name, hint in hints.items()
        for note in getattr(hint, "__metadata__", ())
        if isinstance(note, When)
    }
    return hints, defaults, conditions


def _is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


def members(hint: Any) -> tuple[Any, ...]:
    """Return the types a hint allows, without its notes: of `X | None` both, of any other itself."""
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(inner for member in get_args(hint) for inner in members(member))
    return (hint,)


def fitted(hint: Any, value: Any) -> Any:
    """Return a value as its hint asks, or raise MismatchError."""
    origin, arguments = get_origin(hint), get_args(hint)
    value = value.item() if isinstance(value, np.generic) else value
    if origin is Annotated:
        found = fitted(arguments[0], value)
        for note in arguments[1:]:
            if isinstance(note, Range):
                note.check(value)  # as it was given: 0, not 0.0
        return found
    if origin in (Union, UnionType):
        return _any_of(arguments, hint, value)
    if origin in LISTS or hint in LISTS:
        return _entries(origin or hint, arguments, hint, value)
    if origin in (dict, Mapping) or hint is dict:
        return _table(arguments, hint, value)
    if origin is CALLABLE or hint is Callable:
        return value if callable(value) else _refuse(hint, value)
    if origin is Literal:
        return value if any(_is_same(value, choice) for choice in arguments) else _refuse(hint, value)
    return _plain(hint, value)


def _refuse(hint: Any, value: Any) -> Any:
    raise MismatchError(f"to be {needed(hint)}", value)


def _plain(hint: Any, value: Any) -> Any:
    """Return a value of a type that has no parts."""
    if hint in (Any, object):
        return value
    if hint is float:
        return _float(value)
    if hint in (int, bool, str, NoneType, None):
        return value if type(value) is (hint or NoneType) else _refuse(hint, value)
    if hint is Path:
        return Path(value) if isinstance(value, str | Path) else _refuse(hint, value)
    if not isinstance(hint, type):
        return value  # a type variable, or another hint that no value can be held to
    if _is_protocol(hint):
        is_one = not isinstance(value, type) and all(callable(getattr(value, m, None)) for m in methods_of(hint))
        return value if is_one else _refuse(hint, value)
    return value if isinstance(value, hint) else _refuse(hint, value)


def _float(value: Any) -> float:
    if type(value) in (int, float) and not (isinstance(value, float) and math.isnan(value)):
        try:
            return float(value)
        except OverflowError:
            pass
    return _refuse(float, value)  # type: ignore[no-any-return]


def _any_of(choices: tuple[Any, ...], hint: Any, value: Any) -> Any:
    outside = None
    for member in sorted(choices, key=lambda m: float in members(m)):  # a whole number stays one where both are allowed
        try:
            return fitted(member, value)
        except MismatchError as error:
            outside = error if error.is_range else outside
    raise outside or MismatchError(f"to be {needed(hint)}", value)


def _entries(kind: Any, arguments: tuple[Any, ...], hint: Any, value: Any) -> Any:
    if not isinstance(value, list | tuple | range | np.ndarray) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return _refuse(hint, value)
    listed = value.tolist() if isinstance(value, np.ndarray) else list(value)
    if arguments:
        fixed = kind is tuple and Ellipsis not in arguments
        if fixed and len(listed) != len(arguments):
            return _refuse(hint, value)
        kinds = arguments if fixed else (arguments[0],) * len(listed)
        try:
            listed = [fitted(inner, entry) for inner, entry in zip(kinds, listed, strict=True)]
        except MismatchError as error:
            if error.is_range:
                raise
            return _refuse(hint, value)
    return listed if kind is list else tuple(listed)


def _table(arguments: tuple[Any, ...], hint: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _refuse(hint, value)
    key_hint, inner = arguments or (Any, Any)
    try:
        return {_key(key_hint, key): fitted(inner, entry) for key, entry in value.items()}
    except MismatchError as error:
        if error.is_range:
            raise
        return _refuse(hint, value)


def _key(hint: Any, key: Any) -> Any:
    """Return the key of a table; a study file's keys are texts, and stand for numbers where those are needed."""
    is_number = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 19
    return fitted(hint, int(key) if is_number and int in members(hint) else key)


def _is_protocol(hint: Any) -> bool:
    return bool(getattr(hint, "_is_protocol", False))


def methods_of(protocol: type) -> list[str]:
    """Return the methods that a protocol asks for."""
    return [name for name in dir(protocol) if not name.startswith("_") and callable(getattr(protocol, name))]


def needed(hint: Any) -> str:
    """Return what a type asks for, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return needed(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(needed(member) for member in arguments)
    if origin is Literal:
        return "one of " + ", ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in arguments)
    if origin in LISTS and get_origin(arguments[0] if arguments else None) is Literal:
        return f"a list, each {needed(arguments[0])}"
    if origin in LISTS and arguments:
        many = needed(arguments[0]).removeprefix("a ") + "s"
        fixed = origin is tuple and Ellipsis not in arguments
        return f"a list of {len(arguments)} {many}" if fixed else f"a list of {many}"
    if origin in (dict, Mapping) or hint is dict:
        return "a table"
    if hint in (tuple, list):
        return "a list"
    return _called(hint)


def _called(hint: Any) -> str:
    if hint is Path:
        return "a path"
    if hint in WORDS or not isinstance(hint, type):
        return WORDS.get(hint, "package.module:name")
    if _is_protocol(hint):
        return f"a rule with the method {' and '.join(methods_of(hint))}"
    return f"a {hint.__name__}"


def shown(value: Any) -> str:
    """Return a value as a study file has it, cut short."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        text = "[" + ", ".join(shown(entry) for entry in value[:LONGEST]) + "]"
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, int | float | None):
        text = '"none"' if value is None else _exactly(value)
    else:
        text = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "…"


def _exactly(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to print whole numbers beyond some thousands of digits
        return "a very long number"


def _digits(bound: float) -> str:
    """Return a bound as people read it: 0.5, 1, 1,000,000."""
    return f"{int(bound):,}" if float(bound).is_integer() else f"{bound:g}"
