"""Checks the sections of a study in Python, and makes rules from names and dicts.

A string is the name of a rule and a dict its settings, as in a study file. In an arm, a dict changes the study's rule.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from torch import nn

from turnout.axes import AXES, FLEET_AXES, RULE_SECTIONS, TABLES, at
from turnout.catalogue import loss_named
from turnout.data.federation import Federation
from turnout.errors import Problem
from turnout.fleet import Fleet
from turnout.models.keyed import has_lazy, waiting
from turnout.models.user_modules import is_module_factory, qualified_name
from turnout.own_rules import has_method, rule_problems
from turnout.shorthand import as_rule
from turnout.study.typed_values import table_of

KINDS: dict[str, type] = {section: at(table.kind) for section, table in TABLES.items()}
INSTEAD = {"data": Federation, "model": nn.Module}  # accepted besides rules
ALSO = {"data": "a Federation, or ", "model": "an nn.Module, a class or function that makes one, or "}


def section_value(section: str, value: Any, base: Any = None) -> Any:
    """Return the value of a section: a name or a dict becomes a rule, with `base` as its default; others stay."""
    if section == "loss" and isinstance(value, str):
        return loss_named(value)
    if section in KINDS and isinstance(value, Mapping):
        return table_of(section, value, base)
    if section in RULE_SECTIONS:
        return as_rule(
            RULE_SECTIONS[section], value, base if is_dataclass(base) and type(base) is not Federation else None
        )
    return value


def section_problems(study: object) -> Iterator[Problem]:
    """Yield a problem for each section of a study with an invalid value."""
    for section, axis in RULE_SECTIONS.items():
        value = getattr(study, section)
        if section == "model" and is_module_factory(value):
            yield from (Problem(message, section) for message in _call_problems(value))
        elif isinstance(value, type):
            name = value.__name__
            yield Problem(f"{section} needs a rule, not its class; got {name}. Write {name}(…).", section)
        elif isinstance(value, INSTEAD.get(section, ())):
            if isinstance(value, nn.Module) and has_lazy(value):
                yield Problem(waiting(section, type(value).__name__), section)
        elif not has_method(axis, value) and not (value is None and AXES[axis].is_optional):
            also, methods = ALSO.get(section, ""), AXES[axis].methods
            yield Problem(
                f"{section} needs {also}a rule with the method {' or '.join(methods)}; got {value!r:.80}. "
                f"See `turnout ls {axis}` for rules that have it.",
                section,
            )
        elif value is not None:
            yield from rule_problems(axis, value)
    for section, kind in KINDS.items():
        value = getattr(study, section)
        if value is None and TABLES[section].is_optional:
            continue
        if not isinstance(value, kind):
            got = f"the class {value.__name__}" if isinstance(value, type) else f"{value!r:.80}"
            advice = _advice(section, kind, value)
            yield Problem(f"{section} needs a {kind.__name__}; got {got}. {advice}", section)
        elif isinstance(value, Fleet):
            rules = {axis: getattr(value, axis) for axis in FLEET_AXES}
            for axis, rule in rules.items():
                yield from () if rule is None else rule_problems(axis, rule)


def _advice(section: str, kind: type, value: object) -> str:
    """Return what to write instead; for a rule of the fleet, with its place in the fleet."""
    axes = FLEET_AXES if kind is Fleet and not isinstance(value, type) else ()
    part = next((axis for axis in axes if has_method(axis, value)), None)
    inside = f"{part}={type(value).__name__}(…)" if part else "…"
    return f"Write {section}={kind.__name__}({inside})."


def arm_problems(arms: object, kind: type) -> Iterator[str]:
    """Yield a message if the arms are not a list of arms."""
    entries = arms if isinstance(arms, Iterable) and not isinstance(arms, str) else [arms]
    wrong = next((entry for entry in entries if not isinstance(entry, kind)), None)
    if wrong is not None:
        name = wrong if isinstance(wrong, str) else "a name"
        yield f'arms needs a list of arms; got {wrong!r:.60}. Write arms=[turnout.arm("{name:.40}", …)].'
    elif not isinstance(arms, Iterable):
        yield "arms needs a list of arms; got one arm. Write arms=[turnout.arm(…)]."


def _call_problems(value: Any) -> Iterator[str]:
    """Yield a message if a class or function cannot be called without arguments."""
    try:
        wanted = inspect.signature(value).parameters.values()
    except (ValueError, TypeError):  # a signature that Python cannot read
        return
    needed = [p.name for p in wanted if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed:
        name = qualified_name(value)
        yield (
            f"model needs a class or function that can be called without arguments; {name} needs {', '.join(needed)}. "
            f"Write model=lambda: {name}(…)."
        )
