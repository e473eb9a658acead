"""What there is to choose from: the rules of each axis, found by name, and what each says of itself.

Nothing is registered. An axis is a package; its rules are the classes its `__all__` lists that have the axis's
method; a rule's name is its module's file name with `_` as `-`. A rule from elsewhere is `package.module:Name`: to
find it is to import it, and to import it is to run it, so a study file gets one only where code is allowed.
"""

import ast
import inspect
import io
import textwrap
import tokenize
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from importlib import import_module
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from turnout.errors import ConfigError
from turnout.settings import Range

if TYPE_CHECKING:  # names are looked up, and rules described, without PyTorch
    from turnout.losses import Loss


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: where its rules live, how one is recognised, and where a study file names it."""

    package: str
    methods: tuple[str, ...]  # a rule has one of these
    about: str
    section: str  # the table of a study file


AXES: dict[str, Axis] = {
    "data": Axis("turnout.data", ("build",), "who holds what", "data"),
    "partition": Axis("turnout.data.partition", ("split",), "how samples are dealt to clients", "data.partition"),
    "models": Axis("turnout.models", ("build",), "what is trained", "model"),
    "availability": Axis("turnout.fleet.availability", ("up",), "who is up", "fleet.availability"),
    "work": Axis("turnout.fleet.work", ("done",), "how much of the asked work gets done", "fleet.work"),
    "clock": Axis("turnout.fleet.clock", ("run",), "how long things take", "fleet.clock"),
    "membership": Axis("turnout.fleet.membership", ("members",), "who belongs, and when", "fleet.membership"),
    "filtering": Axis("turnout.filtering", ("keep",), "which of those that are up may be asked", "filtering"),
    "selection": Axis("turnout.selection", ("choose",), "who is asked", "selection"),
    "local": Axis("turnout.local", ("update",), "what a client does", "local"),
    "schedule": Axis("turnout.local.schedule", ("factor",), "how the local rate falls", "local.schedule"),
    "effort": Axis("turnout.local.effort", ("steps",), "how much work is asked for", "local.effort"),
    "aggregation": Axis("turnout.aggregation", ("coefficients", "combine"), "how answers combine", "aggregation"),
    "server": Axis("turnout.server", ("advance",), "how the model moves", "server"),
    "assist": Axis("turnout.assist", ("takes",), "when the server helps itself", "assist"),
    "asynchrony": Axis("turnout.asynchrony", ("weight",), "when the server does not wait", "asynchrony"),
    "attack": Axis("turnout.attacks", ("forge", "relabel"), "what hostile clients do", "attack"),
}

OWN = "turnout"  # the package whose code a study file may name without being asked about it


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of a rule, as a study file may give it."""

    name: str
    hint: Any
    default: Any = MISSING  # MISSING: it must be given

    @property
    def is_required(self) -> bool:
        """Whether a study must give it."""
        return self.default is MISSING


def axis_named(name: str) -> str:
    """Return the axis of this name; a study file's section name will do as well."""
    for axis, facts in AXES.items():
        if name in (axis, facts.section):
            return axis
    raise ConfigError(f"There is no axis {name}.{did_you_mean(name, list(AXES))} The axes are {', '.join(AXES)}.")


def catalogue(axis: str) -> dict[str, type]:
    """Return the rules of an axis by name, in the order of names."""
    facts = AXES[axis_named(axis)]
    package = import_module(facts.package)
    rules = {}
    for public in getattr(package, "__all__", ()):
        rule = getattr(package, public)
        if is_rule(rule, facts) and rule.__module__.startswith(facts.package + "."):
            rules[rule.__module__.rsplit(".", 1)[1].replace("_", "-")] = rule
    return dict(sorted(rules.items()))


def is_rule(candidate: object, axis: Axis) -> bool:
    """Whether this is a class, and not a protocol, with the axis's method."""
    if not isinstance(candidate, type) or getattr(candidate, "_is_protocol", False):
        return False
    if axis is AXES["models"]:
        from torch import nn  # slow to import, and not needed to look up names

        if issubclass(candidate, nn.Module):
            return True  # a module class of the user's own
    return any(callable(getattr(candidate, m, None)) for m in axis.methods)


def nested_axis(name: str, members: Sequence[Any]) -> str | None:
    """Return the axis of a field that holds a rule, by its type's name or its own."""
    classes = [m for m in members if isinstance(m, type) and m.__module__ != "builtins"]
    for member in classes:
        if member.__name__.lower() in AXES:
            return member.__name__.lower()
    return name if classes and name in AXES else None


def rule_named(axis: str, name: str, *, allow_code: bool = True) -> type:
    """Return the rule that `use = name` means on an axis; without allow_code only turnout's own."""
    facts = AXES[axis]
    if ":" in name:
        found = find(name, allow_code=allow_code)
        if not is_rule(found, facts):
            needed = " or ".join(facts.methods)
            raise ConfigError(
                f"{name} is not a rule for {facts.section}: it needs a method {needed}. "
                f"See `turnout ls {axis}` for rules that have it."
            )
        return found  # type: ignore[no-any-return]
    rules = catalogue(axis)
    if name not in rules:
        few = ", ".join(list(rules)[:4]) + (", …" if len(rules) > 4 else "")
        raise ConfigError(
            f"There is no {facts.section} rule {name!r}.{did_you_mean(name, list(rules))} "
            f"There are {few or 'none'}: see `turnout ls {axis}`, or name your own as package.module:Name."
        )
    return rules[name]


def name_of(axis: str, rule: type) -> str:
    """Return the name that a study file gives a rule: short for a shipped one, package.module:Name for another."""
    for name, known in catalogue(axis).items():
        if known is rule:
            return name
    return f"{rule.__module__}:{rule.__qualname__}"


def find(address: str, *, allow_code: bool = True) -> Any:
    """Import `package.module:Name`; without allow_code only what turnout itself defines, and nothing else is run."""
    module_name, _, attribute = address.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{address!r} is not an address. Write it as package.module:Name.")
    if allow_code:
        return _imported(module_name, attribute)
    names = [*module_name.split("."), attribute]
    found = _imported(module_name, attribute) if names[0] == OWN and all(n.isidentifier() for n in names) else None
    if str(getattr(found, "__module__", "")).partition(".")[0] != OWN:  # os is a name in turnout, but not turnout's
        raise ConfigError(
            f"{address!r} is code: it would import {module_name!r} and so run it. Read that code first, and then allow "
            "it with --allow-code, or in Python with load_study(…, allow_code=True)."
        )
    return found


def _imported(module_name: str, attribute: str) -> Any:
    address = f"{module_name}:{attribute}"
    try:
        module = import_module(module_name)
    except Exception as error:  # whatever a user's module raises while it is imported
        raise ConfigError(
            f"{address} cannot be imported: {type(error).__name__}: {error}. "
            "Check the spelling, and that the module is installed or in the folder you run from."
        ) from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in vars(module) if not name.startswith("_")]
            raise ConfigError(f"{module_name} has no {attribute}.{did_you_mean(attribute, public)}")
        found = getattr(found, part)
    return found


def loss_named(name: str, *, allow_code: bool = True) -> "Loss":
    """Return the loss of this name or address; without allow_code only turnout's own."""
    from turnout.losses import LOSSES

    if ":" in name:
        found = find(name, allow_code=allow_code)
        if not callable(found):
            raise ConfigError(f"{name} is not a loss: it is not a function of (output, target).")
        return found  # type: ignore[no-any-return]
    if name not in LOSSES:
        raise ConfigError(
            f"There is no loss {name!r}.{did_you_mean(name, list(LOSSES))} "
            f"There are {', '.join(LOSSES)}; or name your own as package.module:function."
        )
    return LOSSES[name]


def parameters(rule: type) -> dict[str, Parameter]:
    """Return the settings of a rule by name: of a dataclass its fields, of any other class its __init__'s."""
    if is_dataclass(rule):
        hints = get_type_hints(rule, include_extras=True)
        return {f.name: Parameter(f.name, hints.get(f.name, Any), _default(f)) for f in fields(rule) if f.init}
    hints = get_type_hints(rule.__init__, include_extras=True)  # type: ignore[misc]
    found = {}
    for name, given in inspect.signature(rule).parameters.items():
        if given.kind in (given.POSITIONAL_OR_KEYWORD, given.KEYWORD_ONLY):
            default = MISSING if given.default is given.empty else given.default
            found[name] = Parameter(name, hints.get(name, Any), default)
    return found


def _default(entry: Any) -> Any:
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default


def did_you_mean(word: str, known: list[str]) -> str:
    """Return ' Did you mean x?' for the nearest known word, or nothing."""
    folded = {name.lower().replace("_", "-"): name for name in known}
    near = get_close_matches(word.lower().replace("_", "-"), list(folded), n=1, cutoff=0.6)
    return f" Did you mean {folded[near[0]]}?" if near else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as `turnout show` prints it."""

    name: str
    type: str
    default: str | None  # None: it must be given
    meaning: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a rule says of itself, from its module's docstring and its settings' comments."""

    summary: str
    intuition: str = ""
    formula: str = ""
    notes: str = ""  # what the docstring says besides
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
    """Return what a rule says of itself; `rule_sources` says the same of a shipped one without importing it."""
    module = inspect.getmodule(rule)
    return read_docstring(inspect.cleandoc((module and module.__doc__) or rule.__doc__ or ""), _settings(rule))


def read_docstring(text: str, settings: Sequence[Setting] = ()) -> Description:
    """Return a docstring sorted into its parts."""
    summary, *rest = text.split("\n")
    while rest and rest[0].strip():  # a first sentence that runs over the line
        summary += " " + rest.pop(0).strip()
    return Description(summary=summary, settings=tuple(settings), **_parts(rest))


def _parts(lines: list[str]) -> dict[str, Any]:
    """Sort the lines of a docstring into its labelled parts, its formula and the rest."""
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
    return {"formula": formula} | {name: " ".join(found) for name, found in parts.items()}


def _settings(rule: type) -> list[Setting]:
    written = _written(rule)
    found = []
    for name, given in parameters(rule).items():
        default = None if given.is_required else default_text(given.default)
        found.append(Setting(name=name, type=hint_text(given.hint), default=default, meaning=written.get(name, "")))
    return found


def _written(rule: type) -> dict[str, str]:
    """Return each field's trailing comment."""
    found: dict[str, str] = {}
    for owner in reversed(rule.__mro__):
        try:
            source = textwrap.dedent(inspect.getsource(owner))
            body = ast.parse(source).body[0]
            tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
        except (OSError, TypeError, SyntaxError, IndexError):  # built-in, or typed at a prompt
            continue
        comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for line in getattr(body, "body", []):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                meaning = comments.get(line.end_lineno or line.lineno, "")
                found[line.target.id] = "" if meaning.startswith("noqa") else meaning
    return found


def hint_text(hint: Any) -> str:
    """Return a type as a study file's reader would write it."""
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
    """Return a default as a study file would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(default_text(entry) for entry in value) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return type(value).__name__ if is_dataclass(value) else str(value)
