"""A study in one line: how far it is, and whether somebody is writing it. Nothing is ever opened for writing."""

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
from turnout.journal.opening import reading
from turnout.journal.schema import check_version
from turnout.untrusted_input import count_of, in_brief, name_of

RUNNING, FINISHED, INTERRUPTED, FAILED, UNREADABLE = "running", "finished", "interrupted", "failed", "unreadable"
RUNS = """
SELECT arm, rounds, status, started,
    (SELECT max(round.round) FROM round WHERE round.run = run.id),
    (SELECT accuracy FROM round WHERE round.run = run.id AND accuracy IS NOT NULL ORDER BY round.round DESC LIMIT 1)
FROM run
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One study, as the list shows it."""

    name: str  # its folder's path below the one that is served
    study: str
    state: str
    arms: int = 0
    seeds: int = 0
    runs_finished: int = 0
    done: int = 0  # rounds of all runs together
    rounds: int = 0
    accuracies: tuple[float, ...] = ()  # the last, by arm: the mean over its runs
    started: str = ""  # UTC
    problem: str = ""  # why it cannot be read


def summary_of(name: str, folder: Path, database: sqlite3.Connection | None = None) -> Summary:
    """Return a study's line.

    Args:
        name: what the list calls it.
        folder: where it is.
        database: an open connection to its journal; None opens one for the moment.
    """
    try:
        with _opened(folder, database) as journal:
            study, config = journal.execute("SELECT name, config FROM study").fetchone()
            runs = journal.execute(RUNS).fetchall()
        return _told(name, folder, name_of(study), _asked(json.loads(config)), runs)
    except (JournalError, OSError, sqlite3.Error) as error:
        return Summary(name=name, study=name, state=UNREADABLE, problem=str(error).removesuffix("."))
    except Exception as error:  # whatever it is, it is that study's line alone
        why = f"it holds values that turnout did not write ({in_brief(error)})"
        return Summary(name=name, study=name, state=UNREADABLE, problem=why)


@contextmanager
def _opened(folder: Path, database: sqlite3.Connection | None) -> Iterator[sqlite3.Connection]:
    if database is not None:
        check_version(database, str(folder))
        yield database
        return
    with reading(folder) as opened:
        yield opened


def _asked(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return how many arms, seeds and rounds in all a study is to have."""
    seeds = config.get("seeds", 1)
    count = count_of(len(seeds) if isinstance(seeds, list) else seeds, "seeds")
    arms = [count_of(arm.get("rounds", config.get("rounds", 0)), "rounds") for arm in config.get("arm") or [{}]]
    return len(arms), count, count * sum(arms)


def _time(value: Any) -> str:
    """Return a time as it is written, if it is one."""
    datetime.fromisoformat(value).astimezone()  # raises for what is none
    return str(value)


def _share(value: Any) -> float:
    if type(value) is not float or not 0 <= value <= 1:
        raise ValueError(f"{value!r:.40} in place of an accuracy")
    return value


def _told(name: str, folder: Path, study: str, asked: tuple[int, int, int], runs: Sequence[tuple[Any, ...]]) -> Summary:
    by_arm: dict[str, list[float]] = {}
    for arm, *_, accuracy in runs:
        by_arm.setdefault(arm, []).extend([] if accuracy is None else [_share(accuracy)])
    statuses = [status for _, _, status, *_ in runs]
    arms = max(asked[0], len(by_arm))
    finished = statuses.count(FINISHED)
    return Summary(
        name=name,
        study=study,
        state=_state(folder, statuses, arms * asked[1]),
        arms=arms,
        seeds=max(asked[1], -(-len(runs) // arms)),
        runs_finished=finished,
        done=sum(count_of(last or 0, "a round") for *_, last, _ in runs),
        rounds=max(asked[2], sum(count_of(rounds, "rounds") for _, rounds, *_ in runs)),
        accuracies=tuple(fmean(values) for values in by_arm.values() if values),
        started=min((_time(started) for _, _, _, started, *_ in runs), default=""),
    )


def _state(folder: Path, statuses: Sequence[str], wanted: int) -> str:
    if len(statuses) >= wanted and all(status == FINISHED for status in statuses):
        return FINISHED
    if is_being_written(folder):
        return RUNNING
    return FAILED if FAILED in statuses else INTERRUPTED
