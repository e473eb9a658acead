"""The catalogue: the rules of each axis by name, and a description of each rule.

There is no registry. An axis is a package. Its rules are the classes in the package's `__all__` that have the axis's
method. A rule's name is the file name of its module with `-` for `_`. A rule from another package is named
`package.module:Name`. Importing that module runs its code, so a study file may name such a rule only with allow_code.
"""

import ast
import inspect
import textwrap
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field, is_dataclass
from importlib import import_module
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from turnout.axes import AXES, Axis, use_name
from turnout.errors import ConfigError, did_you_mean
from turnout.field_comments import Comments
from turnout.parameters import parameters
from turnout.settings import LISTS, Range, members

if TYPE_CHECKING:  # looking up names and describing rules must not import PyTorch
    from turnout.losses import Loss


OWN_PACKAGE = "turnout"  # a study file may name code of this package without allow_code


def axis_named(name: str) -> str:
    """Return the axis with this name, or with this section of a study file."""
    for axis, facts in AXES.items():
        if name in (axis, facts.section):
            return axis
    raise ConfigError(f"There is no axis {name}.{did_you_mean(name, list(AXES))} The axes are {', '.join(AXES)}.")


def catalogue(axis: str) -> dict[str, type]:
    """Return the rules of an axis by name, sorted."""
    facts = AXES[axis_named(axis)]
    package = import_module(facts.package)
    rules = {}
    for public in getattr(package, "__all__", ()):
        rule = getattr(package, public)
        if is_rule(rule, facts) and rule.__module__.startswith(facts.package + "."):
            rules[use_name(rule.__module__)] = rule
    return dict(sorted(rules.items()))


def is_rule(candidate: object, axis: Axis) -> bool:
    """Whether an object is a class with the axis's method, and not a protocol."""
    if not isinstance(candidate, type) or getattr(candidate, "_is_protocol", False):
        return False
    if axis is AXES["models"]:
        from torch import nn  # slow to import, and looking up names does not need it

        if issubclass(candidate, nn.Module):
            return True  # the user's own module class
    return any(callable(getattr(candidate, m, None)) for m in axis.methods)


def nested_axis(name: str, kinds: Sequence[Any]) -> str | None:
    """Return the axis of a field that holds a rule, from the field's types or the name of the field itself."""
    classes = [kind for kind in kinds if isinstance(kind, type) and kind.__module__ != "builtins"]
    protocols = {axis.protocol: axis.name for axis in AXES.values()}
    for kind in classes:
        if kind.__name__.lower() in AXES:
            return kind.__name__.lower()
        if f"{kind.__module__}:{kind.__name__}" in protocols:
            return protocols[f"{kind.__module__}:{kind.__name__}"]
    return name if classes and name in AXES else None


def nested_list_axis(kinds: Sequence[Any]) -> str | None:
    """Return the axis of a field that holds a list of rules, from the field's types."""
    lists = (kind for kind in kinds if get_origin(kind) in LISTS and get_args(kind))
    return next((axis for kind in lists if (axis := nested_axis("", members(get_args(kind)[0])))), None)


def rule_named(axis: str, name: str, *, allow_code: bool = True) -> type:
    """Return the rule that `use = name` means on an axis; without allow_code, only turnout's own rules."""
    facts = AXES[axis]
    if ":" in name:
        rule = find(name, allow_code=allow_code)
        if not is_rule(rule, facts):
            methods = " or ".join(facts.methods)
            raise ConfigError(
                f"{name} is not a rule for {facts.section}: it needs a method {methods}. "
                f"See `turnout ls {axis}` for rules that have it."
            )
        return rule  # type: ignore[no-any-return]
    rules = catalogue(axis)
    if name not in rules:
        few = ", ".join(list(rules)[:4]) + (", …" if len(rules) > 4 else "")
        raise ConfigError(
            f"There is no {facts.section} rule {name!r}.{did_you_mean(name, list(rules))} "
            f"There are {few or 'none'}: see `turnout ls {axis}`, or name your own as package.module:Name."
        )
    return rules[name]


def name_of(axis: str, rule: type) -> str:
    """Return a rule's name in a study file: a short name if turnout ships it, else package.module:Name."""
    for name, known in catalogue(axis).items():
        if known is rule:
            return name
    return f"{rule.__module__}:{rule.__qualname__}"


def find(address: str, *, allow_code: bool = True) -> Any:
    """Import `package.module:Name`; without allow_code, only objects that turnout defines, and no other code runs."""
    module_name, _, attribute = address.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{address!r} is not an address. Write it as package.module:Name.")
    if allow_code:
        return _import(module_name, attribute)
    names = [*module_name.split("."), attribute]
    is_own_module = names[0] == OWN_PACKAGE and all(n.isidentifier() for n in names)
    target = _import(module_name, attribute) if is_own_module else None
    if str(getattr(target, "__module__", "")).partition(".")[0] != OWN_PACKAGE:  # turnout.x:os is not turnout's code
        raise ConfigError(
            f"{address!r} is code: it would import {module_name!r} and so run it. Read that code first, and then allow "
            "it with --allow-code, or in Python with load_study(…, allow_code=True)."
        )
    return target


def _import(module_name: str, attribute: str) -> Any:
    address = f"{module_name}:{attribute}"
    try:
        module = import_module(module_name)
    except Exception as error:  # a user's module may raise anything while it is imported
        raise ConfigError(
            f"{address} cannot be imported: {type(error).__name__}: {error}. "
            "Check the spelling, and that the module is installed or in the folder you run from."
        ) from error
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            public = [name for name in vars(module) if not name.startswith("_")]
            raise ConfigError(f"{module_name} has no {attribute}.{did_you_mean(attribute, public)}")
        target = getattr(target, part)
    return target


def loss_named(name: str, *, allow_code: bool = True) -> "Loss":
    """Return the loss with this name or address; without allow_code, only turnout's own losses."""
    from turnout.losses import LOSSES

    if ":" in name:
        loss = find(name, allow_code=allow_code)
        if not callable(loss):
            raise ConfigError(f"{name} is not a loss: it is not a function of (output, target).")
        return loss  # type: ignore[no-any-return]
    if name not in LOSSES:
        raise ConfigError(
            f"There is no loss {name!r}.{did_you_mean(name, list(LOSSES))} "
            f"There are {', '.join(LOSSES)}; or name your own as package.module:function."
        )
    return LOSSES[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as `turnout show` prints it."""

    name: str
    type: str
    default: str | None  # None: the setting is required
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A rule's description, from the docstring of its module and the comments on its settings."""

    summary: str
    intuition: str = ""
    formula: str = ""
    notes: str = ""  # the paragraphs of the docstring that have no label
    reduces_to: str = ""
    differs: str = ""
    reference: str = ""
    settings: tuple[Setting, ...] = field(default=())


LABELS = {
    "Intuition:": "intuition",
    "Reduces to:": "reduces_to",
    "Differs from the paper:": "differs",
    "Reference:": "reference",
}


def describe(rule: type) -> Description:
    """Return the description of a rule; `rule_sources` makes the same one of a shipped rule without importing it."""
    module = inspect.getmodule(rule)
    return read_docstring(inspect.cleandoc((module and module.__doc__) or rule.__doc__ or ""), _settings(rule))


def read_docstring(text: str, settings: Sequence[Setting] = ()) -> Description:
    """Split a docstring into its parts."""
    summary, *rest = text.split("\n")
    while rest and rest[0].strip():  # a summary of more than one line
        summary += " " + rest.pop(0).strip()
    return Description(summary=summary, settings=tuple(settings), **_parts(rest))


def _parts(lines: list[str]) -> dict[str, Any]:
    """Split the lines of a docstring into its labelled parts, its formula and its notes."""
    parts: dict[str, list[str]] = {name: [] for name in (*LABELS.values(), "formula", "notes")}
    current = "notes"
    for line in lines:
        label = next((label for label in LABELS if line.startswith(label)), None)
        if label is not None:
            current = LABELS[label]
            parts[current].append(line[len(label) :].strip())
        elif line.startswith("    "):
            parts["formula"].append(line)
            current = "notes"
        elif not line.strip():
            current = "notes"
            if parts["formula"] and parts["formula"][-1]:
                parts["formula"].append("")
        else:
            parts[current].append(line.strip())
    formula = textwrap.dedent("\n".join(parts.pop("formula"))).strip("\n")
    return {"formula": formula} | {name: " ".join(texts) for name, texts in parts.items()}


def _settings(rule: type) -> list[Setting]:
    meanings = _field_meanings(rule)
    settings = []
    for name, parameter in parameters(rule).items():
        default = None if parameter.is_required else default_text(parameter.default)
        text = hint_text(parameter.hint)
        settings.append(Setting(name=name, type=text, default=default, meaning=meanings.get(name, "")))
    return settings


def _field_meanings(rule: type) -> dict[str, str]:
    """Return the comment that explains each field."""
    meanings: dict[str, str] = {}
    for owner in reversed(rule.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(owner))
            body, comments = ast.parse(source).body[0], Comments.of(source)
        except (OSError, TypeError, SyntaxError, IndexError, tokenize.TokenError):  # no source: built-in, or a prompt
            continue
        for line in getattr(body, "body", []):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                meanings[line.target.id] = comments.explanation(line)
    return meanings


def hint_text(hint: Any) -> str:
    """Return a type in the notation of study files."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bounds = [note.words for note in arguments[1:] if isinstance(note, Range) and note.words]
        return " ".join([hint_text(arguments[0]), *bounds])
    if origin is Literal:
        return " | ".join(default_text(choice) for choice in arguments)
    if origin in (Union, UnionType):
        return " | ".join(hint_text(member) for member in arguments)
    if origin in (tuple, list, Sequence):
        return "[" + ", ".join("…" if entry is Ellipsis else hint_text(entry) for entry in arguments) + "]"
    if hint is NoneType:
        return "none"
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def default_text(value: object) -> str:
    """Return a default in the notation of study files."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(default_text(entry) for entry in value) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return type(value).__name__ if is_dataclass(value) else str(value)
