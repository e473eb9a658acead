"""What is given for a study's sections in Python: names and dicts become rules, anything else is told apart.

A string is the name of a rule, a dict its settings, as in a study file; in an arm, a dict changes the study's own.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from torch import nn

from turnout.catalogue import AXES, loss_named
from turnout.checkpoint import Checkpoint
from turnout.coordinator import Cadence, Trust, Turnover
from turnout.data.federation import Federation
from turnout.fleet import Fleet
from turnout.models.keyed import has_lazy, waiting
from turnout.shorthand import as_rule
from turnout.study.typed_values import table_of
from turnout.study.user_models import called, makes_modules

SECTIONS = {axis.section: name for name, axis in AXES.items() if "." not in axis.section}  # of a study, and their axes
TABLES: dict[str, type] = {
    "fleet": Fleet,
    "turnover": Turnover,
    "evaluate": Cadence,
    "trust": Trust,
    "checkpoint": Checkpoint,
}
OPTIONAL = ("assist", "asynchrony", "attack")
INSTEAD = {"data": Federation, "model": nn.Module}  # that are taken as they are
ALSO = {"data": "a Federation, or ", "model": "an nn.Module, a class or function that makes one, or "}


def read_section(section: str, value: Any, base: Any = None) -> Any:
    """Return a section's value: a name or a dict is read, over `base` where there is one; the rest stays as it is."""
    if section == "loss" and isinstance(value, str):
        return loss_named(value)
    if section in TABLES and isinstance(value, Mapping):
        return table_of(section, TABLES[section], value, base)
    if section in SECTIONS:
        return as_rule(SECTIONS[section], value, base if is_dataclass(base) and type(base) is not Federation else None)
    return value


def rule_problems(study: object) -> Iterator[str]:
    """Yield a message for each section of a study whose value cannot be what the section needs."""
    for section, axis in SECTIONS.items():
        value = getattr(study, section)
        if section == "model" and makes_modules(value):
            yield from _call_problems(value)
        elif isinstance(value, type):
            yield f"{section} needs a rule, not its class; got {value.__name__}. Write {value.__name__}(…)."
        elif isinstance(value, INSTEAD.get(section, ())):
            if isinstance(value, nn.Module) and has_lazy(value):
                yield waiting(section, type(value).__name__)
        elif not (value is None and section in OPTIONAL) and not _is_rule(axis, value):
            also, methods = ALSO.get(section, ""), AXES[axis].methods
            yield (
                f"{section} needs {also}a rule with the method {' or '.join(methods)}; got {value!r:.80}. "
                f"See `turnout ls {axis}` for rules that have it."
            )
    for section, kind in TABLES.items():
        value = getattr(study, section)
        if not isinstance(value, kind):
            got = f"the class {value.__name__}" if isinstance(value, type) else f"{value!r:.80}"
            yield f"{section} needs a {kind.__name__}; got {got}. {_way_out(section, kind, value)}"


def _is_rule(axis: str, value: object) -> bool:
    return any(callable(getattr(value, method, None)) for method in AXES[axis].methods)


def _way_out(section: str, kind: type, value: object) -> str:
    """Return what to write; a rule of the fleet's is told its place in it."""
    axes = ("availability", "work", "clock", "membership") if kind is Fleet and not isinstance(value, type) else ()
    part = next((axis for axis in axes if _is_rule(axis, value)), None)
    inside = f"{part}={type(value).__name__}(…)" if part else "…"
    return f"Write {section}={kind.__name__}({inside})."


def arm_problems(arms: object, kind: type) -> Iterator[str]:
    """Yield a message where the arms are not a list of arms."""
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
    except (ValueError, TypeError):  # one that does not tell
        return
    needed = [p.name for p in wanted if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if needed:
        name = called(value)
        yield (
            f"model needs a class or function that can be called without arguments; {name} needs {', '.join(needed)}. "
            f"Write model=lambda: {name}(…)."
        )
