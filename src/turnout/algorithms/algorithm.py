"""What a named algorithm is: a function from settings to the sections of a study, and what its file says about it.

An algorithm is defined by the sections that its function returns. The value of a section setting is either fixed by
the function, or it comes from one of the function's own settings. `Algorithm.differences` compares other sections
with that: a fixed value must be the same, and any other must be one that the function's setting may have.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from importlib import import_module
from typing import Annotated, Any, Literal, ParamSpec

from turnout.algorithms.example import Example
from turnout.catalogue import Setting, default_text, hint_text
from turnout.parameters import Parameter, parameters
from turnout.settings import MismatchError, Range, StepCount, converted_settings, fitted, refuse_unnamed, shown

P = ParamSpec("P")
Sections = dict[str, Any]  # by section of a study: the rule's name and its settings, as a study file has them
Work = StepCount | tuple[StepCount, StepCount]  # a number of epochs or steps, or a range
Momentum = Annotated[float, Range(above=0, below=1)]
Weighting = Literal["mean", "ht", "ht-fleet", "ratio"]
Assignment = Literal["fixed", "drawn", "by-speed", "listed"]  # which client trains how much of the model
PARTS = ("Round:", "Choice per axis:", "Reduces to:", "When to use it:", "Reference:")  # in this order


def algorithm(function: Callable[P, Sections]) -> Callable[P, Sections]:
    """Check the settings of a named algorithm against their type hints whenever it is called."""

    @wraps(function)
    def checked(*unnamed: P.args, **settings: P.kwargs) -> Sections:
        known, name = parameters(function), function.__name__
        refuse_unnamed(unnamed, known, name)
        return function(**converted_settings(known, settings, name, "recipe"))  # type: ignore[call-arg]

    return checked


def given(**settings: Any) -> dict[str, Any]:
    """Return the settings that are not None: those left out stay as the study has them."""
    return {name: value for name, value in settings.items() if value is not None}


class _Text(str):
    """A text setting that remembers which setting it is; the function may compare it."""

    setting: str


@dataclass(frozen=True, slots=True)
class _Placeholder:
    """Stands for the value of a setting that is no text."""

    setting: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A section setting with a value that the algorithm cannot have."""

    path: str  # such as "local.control"
    need: str  # such as "> 0" or '= "sgd"'
    got: Any


@dataclass(frozen=True)
class Algorithm:
    """A named algorithm and what its file says about it."""

    function: Callable[..., Sections]

    @property
    def name(self) -> str:
        """Its name in a study file and on the command line."""
        return self.function.__name__.replace("_", "-")

    @property
    def in_python(self) -> str:
        """How Python code names it, after `import turnout`."""
        return f"turnout.algorithms.{self.function.__name__}"

    @cached_property
    def docstring(self) -> str:
        """The docstring of its file."""
        return inspect.cleandoc(import_module(self.function.__module__).__doc__ or "")

    @property
    def summary(self) -> str:
        """Its first sentence."""
        return self.docstring.splitlines()[0]

    @cached_property
    def parts(self) -> dict[str, str]:
        """The labelled parts of its docstring; what stands before the first label is "about"."""
        found: dict[str, list[str]] = {"about": []}
        current = "about"
        for line in self.docstring.splitlines()[1:]:
            label = next((part for part in PARTS if line.startswith(part)), None)
            if label is not None:
                current, line = label, line[len(label) :].strip()
            found.setdefault(current, []).append(line)
        return {label: "\n".join(lines).strip("\n") for label, lines in found.items()}

    @property
    def example(self) -> Example:
        """The study that shows it."""
        found = import_module(self.function.__module__).EXAMPLE
        assert isinstance(found, Example)
        return found

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """Its settings by name."""
        return parameters(self.function)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Its settings with their types, defaults and meanings."""
        meanings = argument_meanings(self.function.__doc__ or "")
        return tuple(
            Setting(
                name=name,
                type=hint_text(entry.hint),
                default=None if entry.is_required else default_text(entry.default),
                meaning=meanings.get(name, ""),
            )
            for name, entry in self.parameters.items()
        )

    def places(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """Return by path the setting that a section setting comes from; those fixed or left open are left out."""
        marked: dict[str, Any] = {}
        for name, entry in self.parameters.items():
            value = settings.get(name, entry.default)
            if isinstance(value, str):
                marked[name] = _Text(value)
                marked[name].setting = name
            else:
                marked[name] = None if value is None else _Placeholder(name)
        plain: Callable[..., Sections] = inspect.unwrap(self.function)
        return {p: v.setting for p, v in flat(plain(**marked)).items() if isinstance(v, _Text | _Placeholder)}

    def differences(self, settings: Mapping[str, Any], values: Mapping[str, Any]) -> list[Difference]:
        """Return where section settings are not those of this algorithm with any settings; other rules come first.

        Args:
            settings: what the algorithm was called with.
            values: by path what the study has; a path that it leaves out is none.
        """
        chosen, found = dict(settings), {}
        for path, name in self.places(settings).items():
            value = _as_in_a_file(values.get(path))
            try:
                chosen[name] = fitted(self.parameters[name].hint, None if value == "none" else value)
            except MismatchError as error:
                found[path] = Difference(path, error.need, value)
        for path, needed in flat(self.function(**chosen)).items():
            got = _as_in_a_file(values.get(path))
            if path not in found and got != _as_in_a_file(needed):
                found[path] = Difference(path, f"= {shown(needed)}", got)
        return sorted(found.values(), key=lambda difference: not difference.path.endswith(".use"))


def _as_in_a_file(value: Any) -> Any:
    return "none" if value is None else list(value) if isinstance(value, tuple) else value


def flat(sections: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings by path: {"local": {"lr": 1}} as {"local.lr": 1}."""
    found: dict[str, Any] = {}
    for key, value in sections.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def argument_meanings(docstring: str) -> dict[str, str]:
    """Return what the `Args:` of a Google-style docstring say about each argument."""
    lines = inspect.cleandoc(docstring).splitlines()
    found: dict[str, str] = {}
    name = ""
    for line in lines[lines.index("Args:") + 1 :] if "Args:" in lines else ():
        if not line.startswith("    "):
            break
        if line[4] != " ":
            name, _, text = line.strip().partition(": ")
            found[name] = text
        else:
            found[name] += f" {line.strip()}"
    return found
