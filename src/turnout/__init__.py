"""turnout: federated learning with whoever turns up."""

from importlib.metadata import version
from typing import TYPE_CHECKING

from turnout.lazy_imports import lazy_getattr

if TYPE_CHECKING:  # for type checkers and editors; at run time each is imported when it is first used
    from turnout import (
        aggregation,
        algorithms,
        assignment,
        assist,
        asynchrony,
        attacks,
        data,
        engine,
        filtering,
        fleet,
        local,
        losses,
        models,
        personal,
        protocols,
        selection,
        server,
        traits,
        width,
    )
    from turnout.analysis.compare import compare
    from turnout.analysis.until_clear import UntilClear
    from turnout.checkpoint import Checkpoint
    from turnout.coordinator import Cadence, MemoryLimit, Trust, Turnover
    from turnout.errors import ConfigError, DataError, JournalError, TurnoutError, UpdateError
    from turnout.fleet import Fleet
    from turnout.journal.load import load
    from turnout.study.load import load_study
    from turnout.study.study import Arm, Study, arm

__version__ = version("turnout")

__all__ = [
    "Arm",
    "Cadence",
    "Checkpoint",
    "ConfigError",
    "DataError",
    "Fleet",
    "JournalError",
    "MemoryLimit",
    "Study",
    "Trust",
    "TurnoutError",
    "Turnover",
    "UntilClear",
    "UpdateError",
    "aggregation",
    "algorithms",
    "arm",
    "assignment",
    "assist",
    "asynchrony",
    "attacks",
    "compare",
    "data",
    "engine",
    "filtering",
    "fleet",
    "load",
    "load_study",
    "local",
    "losses",
    "models",
    "personal",
    "protocols",
    "selection",
    "server",
    "traits",
    "width",
]

_MODULES = {
    "turnout.checkpoint": ("Checkpoint",),
    "turnout.coordinator": ("Cadence", "MemoryLimit", "Trust", "Turnover"),
    "turnout.errors": ("ConfigError", "DataError", "JournalError", "TurnoutError", "UpdateError"),
    "turnout.fleet": ("Fleet",),
    "turnout.journal.load": ("load",),
    "turnout.analysis.compare": ("compare",),
    "turnout.analysis.until_clear": ("UntilClear",),
    "turnout.study.load": ("load_study",),
    "turnout.study.study": ("Arm", "Study", "arm"),
}
_DEFINED_IN = {name: module for module, names in _MODULES.items() for name in names}
__getattr__ = lazy_getattr(__name__, {name: _DEFINED_IN.get(name, f"turnout.{name}") for name in __all__})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
