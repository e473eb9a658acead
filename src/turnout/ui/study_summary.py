"""The summary of a study for the list page: its progress and its state. Journals are only read."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from turnout.errors import JournalError
from turnout.journal.locking import is_being_written
from turnout.journal.open_database import reading
from turnout.journal.progress import StudyProgress, read_progress
from turnout.journal.schema import check_version
from turnout.untrusted_input import count_of, in_brief, name_of

RUNNING, FINISHED, INTERRUPTED, FAILED, UNREADABLE = "running", "finished", "interrupted", "failed", "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySummary:
    """One row of the list."""

    name: str  # path of its folder below the served folder
    study: str
    state: str
    arms: int = 0
    seeds: int = 0
    runs_finished: int = 0
    done: int = 0  # rounds done, of all runs together
    rounds: int = 0
    accuracies: tuple[float, ...] = ()  # by arm: the mean of the last accuracies of its runs
    started: str = ""  # UTC
    problem: str = ""  # why it cannot be read, with a full stop


def summary_of(name: str, folder: Path, database: sqlite3.Connection | None = None) -> StudySummary:
    """Return the summary of a study.

    Args:
        name: its name in the list.
        folder: its folder.
        database: an open connection to its journal; None opens one and closes it again.
    """
    try:
        with _opened(folder, database) as journal:
            progress = read_progress(journal)
        return _summary(name, folder, progress)
    except JournalError as error:
        return StudySummary(name=name, study=name, state=UNREADABLE, problem=str(error))
    except (OSError, sqlite3.Error) as error:
        return StudySummary(name=name, study=name, state=UNREADABLE, problem=f"{error}.")
    except Exception as error:  # a malformed journal affects its own row only
        why = f"it holds values that turnout did not write ({in_brief(error)})."
        return StudySummary(name=name, study=name, state=UNREADABLE, problem=why)


@contextmanager
def _opened(folder: Path, database: sqlite3.Connection | None) -> Iterator[sqlite3.Connection]:
    if database is not None:
        check_version(database, str(folder))
        yield database
        return
    with reading(folder) as opened:
        yield opened


def _planned(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the planned number of arms, of seeds, and of rounds of all runs together."""
    seeds = config.get("seeds", 1)
    count = count_of(len(seeds) if isinstance(seeds, list) else seeds, "seeds")
    arms = [count_of(arm.get("rounds", config.get("rounds", 0)), "rounds") for arm in config.get("arm") or [{}]]
    return len(arms), count, count * sum(arms)


def _time(value: Any) -> str:
    """Return a time as it is stored; raise if it is not one."""
    datetime.fromisoformat(value).astimezone()
    return str(value)


def _share(value: Any) -> float:
    if type(value) is not float or not 0 <= value <= 1:
        raise ValueError(f"{value!r:.40} in place of an accuracy")
    return value


def _summary(name: str, folder: Path, progress: StudyProgress) -> StudySummary:
    planned_arms, planned_seeds, planned_rounds = _planned(json.loads(progress.config))
    runs = progress.runs
    by_arm: dict[str, list[float]] = {}
    for run in runs:
        by_arm.setdefault(run.arm, []).extend([] if run.accuracy is None else [_share(run.accuracy)])
    statuses = [run.status for run in runs]
    arms = max(planned_arms, len(by_arm))
    return StudySummary(
        name=name,
        study=name_of(progress.name),
        state=_state(folder, statuses, arms * planned_seeds),
        arms=arms,
        seeds=max(planned_seeds, -(-len(runs) // arms)),
        runs_finished=statuses.count(FINISHED),
        done=sum(count_of(run.last_round or 0, "a round") for run in runs),
        rounds=max(planned_rounds, sum(count_of(run.rounds, "rounds") for run in runs)),
        accuracies=tuple(fmean(values) for values in by_arm.values() if values),
        started=min((_time(run.started) for run in runs), default=""),
    )


def _state(folder: Path, statuses: Sequence[str], num_runs: int) -> str:
    if len(statuses) >= num_runs and all(status == FINISHED for status in statuses):
        return FINISHED
    if is_being_written(folder):
        return RUNNING
    return FAILED if FAILED in statuses else INTERRUPTED
