"""Settings: `@rule` makes a class a frozen dataclass and checks its settings against their type hints.

Study files and Python code use the same checks and the same messages. An int is accepted for a float. A bool is not a
number, and neither is NaN. numpy scalars become Python numbers, and lists become tuples.

    lr: Positive                                                   a number above 0
    batch_size: Count | None = None                               a whole number from 1 up, or none
    ties: Annotated[bool, When(mode="deterministic")] = False     rejected if another setting makes it have no effect

A class without `@rule` is not checked.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin

import numpy as np

from turnout.axes import AXES
from turnout.errors import ConfigError, Problem, missing_setting, unknown_setting
from turnout.parameters import Parameter, parameters
from turnout.shorthand import as_setting

T = TypeVar("T")
GIVEN: Any = object()  # in When: any value except none and zero
LONGEST = 60  # characters of a value in a message; longer values are cut
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: '"none"'}
CALLABLE = get_origin(Callable[..., Any])
LISTS = (tuple, list, Sequence)


class MismatchError(Exception):
    """A setting has an invalid value; holds the requirement in words and the value."""

    def __init__(self, need: str, got: Any, *, is_range: bool = False) -> None:
        super().__init__(need)
        self.need, self.got, self.is_range = need, got, is_range

    def message(self, rule: str, setting: str, place: str) -> str:
        """Return the message for a setting of a rule; `place` is the setting's full name in a study file."""
        return f"{rule} needs {setting} {self.need}; got {shown(self.got)}. Change {place}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds of a number. The ceiling prevents overflow; a message names it only if a value exceeds it."""

    least: float = -math.inf
    above: float | None = None
    most: float | None = None
    below: float | None = None
    ceiling: float = 1e12

    def check(self, value: float) -> None:
        """Raise MismatchError if the value is out of range."""
        if value < self.least or (self.above is not None and value <= self.above):
            raise MismatchError(self.words, value, is_range=True)
        if (self.most is not None and value > self.most) or (self.below is not None and value >= self.below):
            raise MismatchError(self.words, value, is_range=True)
        if not -self.ceiling <= value <= self.ceiling:
            bound = f"<= {_digits(self.ceiling)}" if value > 0 else f">= -{_digits(self.ceiling)}"
            raise MismatchError(bound, value, is_range=True)

    @property
    def words(self) -> str:
        """The bounds as text: `>= 1`, `> 0` or `in [0, 1)`; empty if there are none."""
        low = self.least if self.above is None else self.above
        high = self.most if self.below is None else self.below
        if high is None and low == -math.inf:
            return ""
        if high is None:
            return f"{'>=' if self.above is None else '>'} {_digits(low)}"
        opens, closes = "[" if self.above is None else "(", "]" if self.below is None else ")"
        return f"in {opens}{_digits(low)}, {_digits(high)}{closes}"


class When:
    """The condition under which a setting has an effect: the values that each of some other settings must have.

    `None` means that the other setting is left out; `GIVEN` means that it has any value except none and zero.
    """

    def __init__(self, **needs: Any) -> None:
        self.needs = {name: need if isinstance(need, tuple) else (need,) for name, need in needs.items()}

    def unmet(self, values: Mapping[str, Any]) -> str | None:
        """Return the first other setting whose value makes this setting have no effect."""
        for name, allowed in self.needs.items():
            value = values[name]
            if not (bool(value) if GIVEN in allowed else any(_is_same(value, choice) for choice in allowed)):
                return name
        return None

    def message(self, rule: str, section: str, setting: str, other: str, values: Mapping[str, Any]) -> str:
        """Return the error message for a setting that has no effect because of another one."""
        allowed, place, both = self.needs[other], f"{section}.{setting}", f"{section}.{other}"
        choices = f"{other} = {' or '.join(map(shown, allowed))}"
        if allowed == (None,):
            condition, advice = f"without {other}", f"Drop {place} or {both}."
        elif allowed == (GIVEN,):
            condition, advice = f"with {other}", f"Drop {place}, or give {both} a value."
        else:
            condition, advice = f"with {choices}", f"Drop {place}, or set {section}.{choices}."
        got = f"{setting} = {shown(values[setting])} and {other} = {shown(values[other])}"
        return f"{rule} uses {setting} only {condition}; got {got}. {advice}"


MOST_CLIENTS = 10**8
MOST_STEPS = 10**6  # all batches of a client's local steps are in memory at once

Count = Annotated[int, Range(least=1, ceiling=1e9)]
CountOrZero = Annotated[int, Range(least=0, ceiling=1e9)]
Clients = Annotated[int, Range(least=1, ceiling=MOST_CLIENTS)]
ClientId = Annotated[int, Range(least=0, ceiling=MOST_CLIENTS)]
StepCount = Annotated[int, Range(least=1, ceiling=MOST_STEPS)]
Width = Annotated[int, Range(least=1, ceiling=1e8)]  # units of a layer, coordinates
Number = Annotated[float, Range()]
Positive = Annotated[float, Range(above=0)]
NonNegative = Annotated[float, Range(least=0)]
Accumulator = Annotated[float, Range(least=0, ceiling=1e30)]  # initial value of a second moment
Share = Annotated[float, Range(least=0, most=1)]  # a fraction or a probability
PositiveShare = Annotated[float, Range(above=0, most=1)]
ShareBelowOne = Annotated[float, Range(least=0, below=1)]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def rule(section: str) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass that raises ConfigError for unknown, missing and invalid settings.

    Args:
        section: the table of a study file that holds the settings, for messages: "local", "fleet.clock".
    """

    def as_dataclass(plain: type[T]) -> type[T]:
        rule_class: Any = dataclass(frozen=True, slots=True, kw_only=True)(plain)
        plain_init = rule_class.__init__
        required = any(entry.default is MISSING and entry.default_factory is MISSING for entry in fields(rule_class))

        @wraps(plain_init)
        def checked_init(self: Any, *unnamed: Any, **values: Any) -> None:
            name = type(self).__name__
            refuse_unnamed(unnamed, (entry.name for entry in fields(rule_class)), name)
            is_complete = not (values or required)
            plain_init(self, **(values if is_complete else valid_settings(rule_class, values, name, section)))

        rule_class.__init__ = checked_init
        return rule_class  # type: ignore[no-any-return]

    return as_dataclass


def converted_settings(
    known: Mapping[str, Parameter], settings: Mapping[str, Any], rule_name: str, section: str
) -> dict[str, Any]:
    """Return the settings converted to their types; raise one ConfigError for all unknown, invalid and missing ones."""
    values, problems = {}, []
    for name, value in settings.items():
        place = f"{section}.{name}"
        if name not in known:
            problems.append(Problem(unknown_setting(rule_name, name, list(known)), place))
            continue
        hint = known[name].hint
        try:
            values[name] = fitted(hint, as_setting(name, members(hint), value))
        except MismatchError as error:
            problems.append(Problem(error.message(rule_name, name, place), place))
    problems += [
        Problem(missing_setting(rule_name, name, section), f"{section}.{name}")
        for name, parameter in known.items()
        if parameter.is_required and name not in settings
    ]
    if problems:
        raise ConfigError.of(problems)
    return values


def refuse_unnamed(unnamed: Sequence[Any], known: Iterable[str], rule_name: str) -> None:
    """Raise ConfigError for a setting that was given without its name."""
    if unnamed:
        got, first = shown(unnamed[0]), next(iter(known), "setting")
        raise ConfigError(f"{rule_name} needs its settings by name; got {got}. Write {rule_name}({first}={got}).")


def valid_settings(rule: type, settings: Mapping[str, Any], rule_name: str, section: str) -> dict[str, Any]:
    """Return the settings converted to their types; raise ConfigError if they are invalid or have no effect."""
    known, conditions = _facts(rule)
    values = converted_settings(known, settings, rule_name, section)
    defaults = {name: parameter.default for name, parameter in known.items()}
    for name, when in conditions.items():
        if name not in values or _is_same(values[name], defaults[name]):
            continue
        with_defaults = {**defaults, **values}
        if other := when.unmet(with_defaults):
            message = when.message(rule_name, section, name, other, with_defaults)
            raise ConfigError(message, setting=f"{section}.{name}")
    return values


@cache
def _facts(rule: type) -> tuple[dict[str, Parameter], dict[str, When]]:
    """Return a rule's parameters and conditions by setting; resolved at first use, so that imports stay fast."""
    known = parameters(rule)
    conditions = {
        name: note
        for name, parameter in known.items()
        for note in getattr(parameter.hint, "__metadata__", ())
        if isinstance(note, When)
    }
    return known, conditions


def _is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(value == other)


def members(hint: Any) -> tuple[Any, ...]:
    """Return the types that a hint allows, without their annotations: X and None for `X | None`, else the hint."""
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return tuple(inner for member in get_args(hint) for inner in members(member))
    return (hint,)


def fitted(hint: Any, value: Any) -> Any:
    """Convert a value to the type of its hint; raise MismatchError if it does not fit."""
    origin, arguments = get_origin(hint), get_args(hint)
    value = value.item() if isinstance(value, np.generic) else value
    if origin is Annotated:
        converted = fitted(arguments[0], value)
        for note in arguments[1:]:
            if isinstance(note, Range):
                note.check(value)  # the original value, so that a message says 0 and not 0.0
        return converted
    if origin in (Union, UnionType):
        return _fit_union(arguments, hint, value)
    if origin in LISTS or hint in LISTS:
        return _fit_list(origin or hint, arguments, hint, value)
    if origin in (dict, Mapping) or hint is dict:
        return _fit_table(arguments, hint, value)
    if origin is CALLABLE or hint is Callable:
        return value if callable(value) else _refuse(hint, value)
    if origin is Literal:
        return value if any(_is_same(value, choice) for choice in arguments) else _refuse(hint, value)
    return _fit_plain(hint, value)


def _refuse(hint: Any, value: Any) -> Any:
    raise MismatchError(f"to be {requirement(hint)}", value)


def _fit_plain(hint: Any, value: Any) -> Any:
    """Convert a value to a type without parameters."""
    if hint in (Any, object):
        return value
    if hint is float:
        return _fit_float(value)
    if hint in (int, bool, str, NoneType, None):
        return value if type(value) is (hint or NoneType) else _refuse(hint, value)
    if hint is Path:
        return Path(value) if isinstance(value, str | Path) else _refuse(hint, value)
    if not isinstance(hint, type):
        return value  # a type variable, or another hint that cannot be checked
    if _is_protocol(hint):
        is_one = not isinstance(value, type) and all(callable(getattr(value, m, None)) for m in methods_of(hint))
        return value if is_one else _refuse(hint, value)
    return value if isinstance(value, hint) else _refuse(hint, value)


def _fit_float(value: Any) -> float:
    if type(value) in (int, float) and not (isinstance(value, float) and math.isnan(value)):
        try:
            return float(value)
        except OverflowError:
            pass
    return _refuse(float, value)  # type: ignore[no-any-return]


def _fit_union(choices: tuple[Any, ...], hint: Any, value: Any) -> Any:
    range_error = None
    for member in sorted(choices, key=lambda m: float in members(m)):  # int before float: an int stays an int
        try:
            return fitted(member, value)
        except MismatchError as error:
            range_error = error if error.is_range else range_error
    raise range_error or MismatchError(f"to be {requirement(hint)}", value)


def _fit_list(kind: Any, arguments: tuple[Any, ...], hint: Any, value: Any) -> Any:
    if not isinstance(value, list | tuple | range | np.ndarray) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return _refuse(hint, value)
    entries = value.tolist() if isinstance(value, np.ndarray) else list(value)
    if arguments:
        has_fixed_length = kind is tuple and Ellipsis not in arguments
        if has_fixed_length and len(entries) != len(arguments):
            return _refuse(hint, value)
        kinds = arguments if has_fixed_length else (arguments[0],) * len(entries)
        try:
            entries = [fitted(inner, entry) for inner, entry in zip(kinds, entries, strict=True)]
        except MismatchError as error:
            if error.is_range:
                raise
            return _refuse(hint, value)
    return entries if kind is list else tuple(entries)


def _fit_table(arguments: tuple[Any, ...], hint: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _refuse(hint, value)
    key_hint, inner = arguments or (Any, Any)
    try:
        return {_fit_key(key_hint, key): fitted(inner, entry) for key, entry in value.items()}
    except MismatchError as error:
        if error.is_range:
            raise
        return _refuse(hint, value)


def _fit_key(hint: Any, key: Any) -> Any:
    """Convert the key of a table; keys in a study file are text, so digits become an int if the hint allows one."""
    is_number = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 19
    return fitted(hint, int(key) if is_number and int in members(hint) else key)


def _is_protocol(hint: Any) -> bool:
    return bool(getattr(hint, "_is_protocol", False))


def methods_of(protocol: type) -> list[str]:
    """Return the methods that a protocol requires; of an axis's protocol, the one that makes a class a rule."""
    for axis in AXES.values():
        if axis.protocol == f"{protocol.__module__}:{protocol.__name__}":
            return list(axis.methods)
    return [name for name in dir(protocol) if not name.startswith("_") and callable(getattr(protocol, name))]


def requirement(hint: Any) -> str:
    """Return the values that a type allows, in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return requirement(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(requirement(member) for member in arguments)
    if origin is Literal:
        return "one of " + ", ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in arguments)
    if origin in LISTS and get_origin(arguments[0] if arguments else None) is Literal:
        return f"a list, each {requirement(arguments[0])}"
    if origin in LISTS and arguments:
        plural = requirement(arguments[0]).removeprefix("a ") + "s"
        has_fixed_length = origin is tuple and Ellipsis not in arguments
        return f"a list of {len(arguments)} {plural}" if has_fixed_length else f"a list of {plural}"
    if origin in (dict, Mapping) or hint is dict:
        return "a table"
    if hint in (tuple, list):
        return "a list"
    return _type_name(hint)


def _type_name(hint: Any) -> str:
    if hint is Path:
        return "a path"
    if hint in WORDS or hint is Callable or not isinstance(hint, type):
        return WORDS.get(hint, "a function (package.module:name)")
    if _is_protocol(hint):
        return f"a rule with the method {' and '.join(methods_of(hint))}"
    return f"a {hint.__name__}"


def shown(value: Any) -> str:
    """Return a value in the notation of study files, cut to LONGEST characters."""
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
        text = '"none"' if value is None else _number_text(value)
    else:
        text = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "…"


def _number_text(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python does not print whole numbers of more than some thousands of digits
        return "a very long number"


def _digits(bound: float) -> str:
    """Return a bound as text: 0.5, 1, 1,000,000."""
    return f"{int(bound):,}" if float(bound).is_integer() else f"{bound:g}"
