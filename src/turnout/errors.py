"""Errors that a user can fix: each message names the rule, the requirement, the actual value and what to do."""

from collections.abc import Iterable
from dataclasses import dataclass


class TurnoutError(Exception):
    """Base class of the errors that turnout raises; the command prints the message and exits with 2."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a study."""

    message: str
    setting: str = ""  # path of the setting to change, such as "selection.cohort_size"; empty: it cannot be told


class ConfigError(TurnoutError):
    """A study has invalid settings; `problems` has the path of each setting to change."""

    def __init__(self, message: str, setting: str = "", problems: tuple[Problem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (Problem(message, setting),)

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> "ConfigError":
        """Return one error for several problems, with one line each."""
        found = tuple(problems)
        return cls("\n".join(problem.message for problem in found), problems=found)


class DataError(TurnoutError):
    """Data is missing, damaged or invalid."""


class StudyNote(UserWarning):
    """A note about a study that its author should know before it runs; not an error."""


class UpdateError(TurnoutError):
    """An aggregation rule cannot combine the updates of a round."""


class EngineError(TurnoutError):
    """An engine cannot work at all, such as a cluster that is lost; no run is to blame."""


class RunsFailed(UserWarning):
    """Some runs of a study failed; the others are finished."""


class JournalError(TurnoutError):
    """A study's folder cannot be read or written."""
