"""Converts tables of a study file to rules: the types of a rule's fields decide how its settings are read.

`turnout.settings` decides which values a type allows, for study files and Python alike. This module makes rules from
tables, imports addresses, and reads `"none"` as None, which TOML lacks. Problems are collected, not raised, so that
all of them are reported at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from difflib import get_close_matches
from functools import partial
from types import NoneType
from typing import Any, get_origin

from torch import nn

from turnout.axes import AXES, TABLES, at
from turnout.catalogue import catalogue, find, name_of, nested_axis, nested_list_axis, rule_named
from turnout.errors import ConfigError, Problem, TurnoutError, missing_setting, unknown_setting
from turnout.models.user_modules import UserModule
from turnout.parameters import Parameter, parameters
from turnout.settings import CALLABLE, MismatchError, fitted, members, shown
from turnout.study.config_tree import Node, Problems, Where, as_table, tree_from_value, where_set

STUDY_KEYS = ("name", "rounds", "seeds", "target", "loss")
FAILED: Any = object()  # an invalid value; its problem has been added


@dataclass(frozen=True, slots=True)
class Reader:
    """Makes rules from tables, and collects problems."""

    problems: Problems
    allow_code: bool = False  # whether a rule may come from another package

    def rule(self, axis: str, node: Node, section: str, default: object = None, base: object = None) -> Any:
        """Return the rule of a table or a name; if there is a base, the table changes settings of the base."""
        table = as_table(node)
        if table is None:
            self.problems.add(node.where, f"{section} must be a table, or the name of a rule; got {node_text(node)}.")
            return FAILED
        entries = dict(table.value)
        use = entries.pop("use", None)
        if base is not None and (use is None or use.value == name_of(axis, type(base))):
            return self.changed(base, Node(entries, table.where), section)
        name = self._use(axis, use, table, section, default)
        if name is None:
            return FAILED
        try:
            rule = rule_named(axis, name, allow_code=self.allow_code)
        except ConfigError as error:
            self.problems.add(use.where if use else table.where, str(error))
            return FAILED
        if issubclass(rule, nn.Module):  # it is built when the run starts
            return self.make(rule, Node(entries, table.where), section, by=lambda **given: UserModule(rule, given))
        return self.make(rule, Node(entries, table.where), section)

    def _use(self, axis: str, use: Node | None, table: Node, section: str, default: object) -> str | None:
        if use is not None and isinstance(use.value, str):
            return use.value
        if use is not None:
            self.problems.add(use.where, f"{section}.use must be the name of a rule; got {node_text(use)}.")
            return None
        name = AXES[axis].default_use if default is None else name_of(axis, type(default))
        if name is None:
            few = ", ".join(list(catalogue(axis))[:4])
            message = f"{section} needs use, the name of a rule. There are {few}, …: see `turnout ls {axis}`."
            self.problems.add(table.where, message)
        return name

    def section(self, name: str, table: Node, base: Any = None) -> Any:
        """Return a section that is no rule, such as the fleet; `use` names a function that makes all of it."""
        facts, use = TABLES[name], table.value.get("use")
        if use is None or facts.presets is None:
            return self.make(at(facts.kind), table, name, base=base)
        presets = at(facts.presets)
        if use.value not in presets:
            message = f"{name}.use must be one of {', '.join(presets)}; got {node_text(use)}. "
            message += "Or set each rule by itself."
            self.problems.add(use.where, message)
            return FAILED
        entries = {key: node for key, node in table.value.items() if key != "use"}
        return self.make(presets[use.value], Node(entries, table.where), name)

    def changed(self, base: Any, table: Node, section: str) -> Any:
        """Return a copy of a rule with some settings changed."""
        if is_dataclass(base):
            return self.make(type(base), table, section, base=base)
        message = f"{section} is {type(base).__name__}, which has no settings to change. Pass a rule instead."
        self.problems.add(table.where, message)
        return FAILED

    def make(
        self,
        rule: Callable[..., Any],
        table: Node,
        section: str,
        by: Callable[..., Any] | None = None,
        base: Any = None,
    ) -> Any:
        """Call a class or function, or `by` instead, with the settings of a table; or change the settings of a base."""
        known, called = parameters(rule), rule.__name__
        by = by or (rule if base is None else partial(replace, base))
        values = {}
        for key, node in table.value.items():
            if key in known:
                values[key] = self.setting(called, known[key], node, section, getattr(base, key, None))
            else:
                values[key] = FAILED
                self.problems.add(node.where, _unknown(called, key, list(known)))
        for name, given in known.items():
            if given.is_required and name not in values and base is None:
                values[name] = FAILED
                self.problems.add(table.where, missing_setting(called, name, section))
        if any(value is FAILED for value in values.values()):
            return FAILED
        try:
            return by(**values)
        except TurnoutError as error:
            found = error.problems if isinstance(error, ConfigError) else (Problem(str(error)),)
            for problem in found:
                self.problems.add(where_set(table, _path_inside(section, problem.setting)), problem.message)
        except Exception as error:  # a user's rule may raise any exception
            message = f"{called} cannot be made with these settings: {type(error).__name__}: {error}."
            self.problems.add(table.where, message)
        return FAILED

    def setting(self, called: str, given: Parameter, node: Node, section: str, base: object = None) -> Any:
        """Return one setting, converted to the type of its field; `base` is the rule that a table changes."""
        place, allowed = f"{section}.{given.name}".lstrip("."), members(given.hint)
        if NoneType in allowed and (node.value is None or node.value == "none"):
            return None
        axis = nested_axis(given.name, allowed)
        if axis is not None and not node.is_python_value:
            default = None if given.is_required else given.default
            return self.rule(axis, node, place, default, base)
        list_axis = nested_list_axis(allowed)
        if list_axis is not None and isinstance(node.value, list):
            node = Node(self._rules(list_axis, node.value, place), node.where)
            if any(entry is FAILED for entry in node.value):
                return FAILED
        plain = next((m for m in allowed if isinstance(m, type) and is_dataclass(m)), None)
        if plain is not None and node.is_table:
            return self.make(plain, node, place, base=base if isinstance(base, plain) else None)
        try:
            return fitted(given.hint, node.value if list_axis is not None else self._meant(allowed, node))
        except MismatchError as error:
            message = error.message(called, given.name, place)
        except ConfigError as error:  # an address without a target, or of code that is not allowed
            message = str(error)
        self.problems.add(node.where, message)
        return FAILED

    def _rules(self, axis: str, entries: Sequence[Node], place: str) -> list[Any]:
        """Return the rules of a list; an entry that is a Python object stays as it is."""
        return [
            entry.value if entry.is_python_value else self.rule(axis, entry, f"{place}.{number}")
            for number, entry in enumerate(entries)
        ]

    def _meant(self, allowed: Sequence[Any], node: Node) -> Any:
        """Return a node's plain value; if a function is needed, an address is imported."""
        is_callable = any(member is Callable or get_origin(member) is CALLABLE for member in allowed)
        if is_callable and isinstance(node.value, str) and ":" in node.value:
            return find(node.value, allow_code=self.allow_code)
        return node.plain()


def rule_of(axis: str, value: str | Mapping[str, Any], base: object = None) -> Any:
    """Return the rule of a name or a dict of settings in Python."""
    with _python_reader() as (reader, where):
        return reader.rule(axis, tree_from_value(value, where), AXES[axis].section, base=base)


def table_of(section: str, value: Mapping[str, Any], base: object = None) -> Any:
    """Return a section that is no rule, such as the fleet, from a dict in Python."""
    with _python_reader() as (reader, where):
        return reader.section(section, tree_from_value(value, where), base)


@contextmanager
def _python_reader() -> Iterator[tuple[Reader, Where]]:
    """Yield a reader for values in Python; raise one ConfigError for all problems."""
    problems = Problems()
    yield Reader(problems, allow_code=True), Where(0, "")
    problems.raise_any()


def node_text(node: Node) -> str:
    """Return a value in the notation of study files, cut to a short text."""
    return shown(node.plain())


def _path_inside(section: str, setting: str) -> str:
    """Return the path of a setting within a section; a nested rule names its setting by the section of its axis."""
    return setting.removeprefix(f"{section}.") if setting.startswith(f"{section}.") else setting.rpartition(".")[2]


def _unknown(rule: str, key: str, known: list[str]) -> str:
    """Return the message for a key that is no setting of a rule; it may be a setting of the study."""
    if key in STUDY_KEYS and not get_close_matches(key, known, n=1, cutoff=0.85):
        return f"{rule} has no setting {key}. {key} belongs at the top of the file, before the first [section]."
    return unknown_setting(rule, key, known)
