"""Errors that a user can fix: each message names the rule, the requirement, the actual value and what to do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches


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
        """Return one error for several problems, with one line each; several rules may have the same one."""
        found = tuple(dict.fromkeys(problems))
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


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Return ' Did you mean x?' for the most similar known word, or an empty string if none is similar."""
    folded = {name.lower().replace("_", "-"): name for name in known}
    near = get_close_matches(word.lower().replace("_", "-"), list(folded), n=1, cutoff=0.6)
    return f" Did you mean {folded[near[0]]}?" if near else ""


def unknown_setting(rule: str, name: str, known: Sequence[str]) -> str:
    """Return the message for a setting that a rule does not have."""
    settings = f"It has {', '.join(known)}." if known else "It has no settings."
    return f"{rule} has no setting {name}.{did_you_mean(name, known)} {settings}"


def missing_setting(rule: str, name: str, section: str) -> str:
    """Return the message for a required setting that was left out."""
    return f"{rule} needs {name}. Set {section}.{name}."
