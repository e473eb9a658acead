"""turnout: federated learning with whoever turns up."""

from importlib.metadata import version

from turnout import aggregation, attacks, data, filtering, fleet, local, losses, models, selection, server
from turnout.checkpoint import Checkpoint
from turnout.coordinator import Cadence, Trust
from turnout.errors import ConfigError, DataError, JournalError, TurnoutError, UpdateError
from turnout.fleet import Fleet
from turnout.journal.load import load
from turnout.study import Arm, Study, arm, compare, load_study

__version__ = version("turnout")

__all__ = [
    "Arm",
    "Cadence",
    "Checkpoint",
    "ConfigError",
    "DataError",
    "Fleet",
    "JournalError",
    "Study",
    "Trust",
    "TurnoutError",
    "UpdateError",
    "aggregation",
    "arm",
    "attacks",
    "compare",
    "data",
    "filtering",
    "fleet",
    "load",
    "load_study",
    "local",
    "losses",
    "models",
    "selection",
    "server",
]
