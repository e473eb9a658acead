"""From tables to typed values: a rule's settings are read by the types of its own fields.

A whole number is accepted where a number is needed; true and false are not numbers; `"none"` stands for nothing,
which TOML cannot say. Every mismatch is noted, not raised, so that one reading tells all of them.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from torch import nn

from turnout.catalogue import AXES, Parameter, catalogue, did_you_mean, find, name_of, parameters, rule_named
from turnout.errors import ConfigError, TurnoutError
from turnout.study.nodes import DEFAULT_USE, Node, Problems, as_table
from turnout.study.own_module import OwnModule

STUDY_KEYS = ("name", "rounds", "seeds", "target", "loss")
FAILED: Any = object()  # a value that could not be read; the problem has been noted


class MismatchError(Exception):
    """A value that is not of the type needed; the text says what is needed."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads tables into rules, noting what is wrong."""

    problems: Problems
    allow_code: bool = False  # whether a rule may be one that is not turnout's own

    def rule(self, axis: str, node: Node, section: str, default: object = None) -> Any:
        """Return the rule that a table, or a bare name, stands for."""
        table = as_table(node)
        if table is None:
            self.problems.add(node.where, f"{section} must be a table, or the name of a rule; got {shown(node)}.")
            return FAILED
        entries = dict(table.value)
        use = entries.pop("use", None)
        name = self._use(axis, use, table, section, default)
        if name is None:
            return FAILED
        try:
            rule = rule_named(axis, name, allow_code=self.allow_code)
        except ConfigError as error:
            self.problems.add(use.where if use else table.where, str(error))
            return FAILED
        if issubclass(rule, nn.Module):  # its settings are kept, and it is made when the run starts
            return self.make(rule, Node(entries, table.where), section, by=lambda **given: OwnModule(rule, given))
        return self.make(rule, Node(entries, table.where), section)

    def _use(self, axis: str, use: Node | None, table: Node, section: str, default: object) -> str | None:
        if use is not None and isinstance(use.value, str):
            return use.value
        if use is not None:
            self.problems.add(use.where, f"{section}.use must be the name of a rule; got {shown(use)}.")
            return None
        name = DEFAULT_USE.get(axis) if default is None else name_of(axis, type(default))
        if name is None:
            few = ", ".join(list(catalogue(axis))[:4])
            message = f"{section} needs use, the name of a rule. There are {few}, …: see `turnout ls {axis}`."
            self.problems.add(table.where, message)
        return name

    def make(self, rule: type, table: Node, section: str, by: Callable[..., Any] | None = None) -> Any:
        """Return the class made with a table's settings, by calling it or what is given."""
        known, called = parameters(rule), rule.__name__
        values = {}
        for key, node in table.value.items():
            if key in known:
                values[key] = self.setting(called, known[key], node, section)
            else:
                values[key] = FAILED
                self.problems.add(node.where, f"{called} has no setting {key}.{_hint(key, list(known))}")
        for name, given in known.items():
            if given.is_required and name not in values:
                values[name] = FAILED
                self.problems.add(table.where, f"{called} needs {name}. Set {section}.{name}.")
        if any(value is FAILED for value in values.values()):
            return FAILED
        try:
            return (by or rule)(**values)
        except TurnoutError as error:
            self.problems.add(_culprit(table, str(error)), str(error))
        except Exception as error:  # a rule of the user's own may raise anything
            message = f"{called} cannot be made with these settings: {type(error).__name__}: {error}."
            self.problems.add(table.where, message)
        return FAILED

    def setting(self, called: str, given: Parameter, node: Node, section: str) -> Any:
        """Return one setting, by the type of its field."""
        place = f"{section}.{given.name}".lstrip(".")
        members = get_args(given.hint) if get_origin(given.hint) in (Union, UnionType) else (given.hint,)
        if NoneType in members and node.value == "none":
            return None
        axis = nested_axis(given.name, members)
        if axis is not None:
            default = None if given.is_required else given.default
            return self.rule(axis, node, place, default)
        plain = next((m for m in members if isinstance(m, type) and is_dataclass(m)), None)
        if plain is not None and node.is_table:
            return self.make(plain, node, place)
        try:
            return converted(given.hint, node, allow_code=self.allow_code)
        except MismatchError as needed:
            message = f"{called} needs {given.name} to be {needed}; got {shown(node)}. Change {place}."
        except ConfigError as error:  # an address that leads nowhere, or to code that is not allowed
            message = str(error)
        self.problems.add(node.where, message)
        return FAILED


def nested_axis(name: str, members: Sequence[Any]) -> str | None:
    """Return the axis of a field that holds a rule, by its type's name or its own."""
    classes = [m for m in members if isinstance(m, type) and m.__module__ != "builtins"]
    for member in classes:
        if member.__name__.lower() in AXES:
            return member.__name__.lower()
    return name if classes and name in AXES else None


def converted(hint: Any, node: Node, *, allow_code: bool = False) -> Any:
    """Return a node's value as the type asks, or raise MismatchError saying what is needed."""
    origin, arguments, value = get_origin(hint), get_args(hint), node.value
    into = partial(converted, allow_code=allow_code)
    if hint in (Any, object):
        return node.plain()
    if origin in (Union, UnionType):
        return _any_of(arguments, hint, node, into)
    if origin is Literal:
        if any(value == choice and type(value) is type(choice) for choice in arguments):
            return value
    elif origin in (tuple, list, Sequence) or hint in (tuple, list):
        return _entries(origin or hint, arguments, node, hint, into)
    elif origin in (dict, Mapping) or hint is dict:
        if isinstance(value, dict):
            inner = arguments[1] if arguments else Any
            return {key: into(inner, entry) for key, entry in value.items()}
    elif hint is float:
        return _number(value, needed(hint))
    elif hint in (int, bool, str) and type(value) is hint:
        return value
    elif hint is Path and isinstance(value, str):
        return Path(value)
    elif (hint is Callable or origin in (Callable, _CALLABLE)) and isinstance(value, str) and ":" in value:
        return find(value, allow_code=allow_code)
    raise MismatchError(needed(hint))


Convert = Callable[[Any, Node], Any]
_CALLABLE = get_origin(Callable[..., Any])


def _any_of(members: tuple[Any, ...], hint: Any, node: Node, into: Convert) -> Any:
    for member in sorted(members, key=lambda m: m is float):  # a whole number stays one where both are allowed
        try:
            return into(member, node)
        except MismatchError:
            continue
    raise MismatchError(needed(hint))


def _entries(kind: Any, arguments: tuple[Any, ...], node: Node, hint: Any, into: Convert) -> Any:
    if not isinstance(node.value, list):
        raise MismatchError(needed(hint))
    if not arguments:
        return tuple(entry.plain() for entry in node.value)
    fixed = kind is tuple and Ellipsis not in arguments
    if fixed and len(node.value) != len(arguments):
        raise MismatchError(needed(hint))
    kinds = arguments if fixed else (arguments[0],) * len(node.value)
    try:
        entries = [into(k, entry) for k, entry in zip(kinds, node.value, strict=True)]
    except MismatchError:
        raise MismatchError(needed(hint)) from None
    return entries if kind is list else tuple(entries)


def _number(value: Any, need: str) -> float:
    if type(value) not in (int, float) or (isinstance(value, float) and math.isnan(value)):
        raise MismatchError(need)
    try:
        return float(value)
    except OverflowError:
        raise MismatchError(need) from None


def needed(hint: Any) -> str:
    """Return what a type asks for, in words."""
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: '"none"'}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(needed(member) for member in arguments)
    if origin is Literal:
        return "one of " + ", ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in arguments)
    if origin in (tuple, list, Sequence) and arguments:
        many = needed(arguments[0]).removeprefix("a ") + "s"
        fixed = origin is tuple and Ellipsis not in arguments
        return f"a list of {len(arguments)} {many}" if fixed else f"a list of {many}"
    if hint is Path:
        return "a path"
    return words.get(hint, "a table" if origin in (dict, Mapping) or hint is dict else _address(hint))


def _address(hint: Any) -> str:
    return "a list" if hint in (tuple, list) else "package.module:name"


def shown(node: Node) -> str:
    """Return a value as the file has it, cut short."""
    value = node.value
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        text = "[" + ", ".join(shown(entry) for entry in value) + "]"
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = f'"{value}"' if isinstance(value, str) else _digits(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _digits(value: Any) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to print whole numbers beyond some thousands of digits
        return "a very long number"


def _hint(key: str, known: list[str]) -> str:
    if key in STUDY_KEYS and not get_close_matches(key, known, n=1, cutoff=0.85):
        return f" {key} belongs at the top of the file, before the first [section]."
    if near := did_you_mean(key, known):
        return near
    return f" It has {', '.join(known)}." if known else " It has no settings."


def _culprit(table: Node, message: str) -> Any:
    """Return where the setting that a message asks to change was written; the table's place if it cannot be told."""
    for key, node in table.value.items():
        if re.search(rf"\b(?:Change|Set) (?:[\w.]+\.)?{re.escape(key)}\b", message):
            return node.where
    return table.where
