"""The settings of a rule or a function: name, type and default of each."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, get_type_hints


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting of a rule: its name, its type and its default."""

    name: str
    hint: Any
    default: Any = MISSING  # MISSING: the setting is required

    @property
    def is_required(self) -> bool:
        """Whether a study must set it."""
        return self.default is MISSING


def parameters(rule: Callable[..., Any]) -> dict[str, Parameter]:
    """Return settings by name: of a dataclass its fields, of another class its __init__'s, of a function its own."""
    if isinstance(rule, type) and is_dataclass(rule):
        hints = get_type_hints(rule, include_extras=True)
        return {f.name: Parameter(f.name, hints.get(f.name, Any), _default(f)) for f in fields(rule) if f.init}
    written = rule.__init__ if isinstance(rule, type) else rule  # type: ignore[misc]
    hints = get_type_hints(written, include_extras=True)
    settings = {}
    for name, parameter in inspect.signature(rule).parameters.items():
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            default = MISSING if parameter.default is parameter.empty else parameter.default
            settings[name] = Parameter(name, hints.get(name, Any), default)
    return settings


def _default(entry: Any) -> Any:
    return entry.default_factory() if entry.default_factory is not MISSING else entry.default
