"""A study in one line: how far it is, and whether somebody is writing it. Nothing is ever opened for writing."""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from turnout.journal.schema import FILE, LOCK, VERSION, has_other_tables
from turnout.strangers import UNLIKELY, count_of, in_brief, name_of
from turnout.ui.folders import log_of

RUNNING, FINISHED, INTERRUPTED, FAILED, UNREADABLE = "running", "finished", "interrupted", "failed", "unreadable"
BUSY_SECONDS = 5.0
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


def open_read_only(folder: Path, *, in_progress: bool = False) -> sqlite3.Connection:
    """Open a journal that may be being written.

    Without a log beside it nobody writes it, and SQLite is told so: it then makes no files of its own. A connection
    that is to see later changes (in_progress) must not be told so.
    """
    journal = folder / FILE
    log = log_of(journal)
    untouched = not in_progress and not (log.exists() and log.stat().st_size)
    address = f"{journal.absolute().as_uri()}?mode=ro{'&immutable=1' if untouched else ''}"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the folder's lock; looking takes nothing from it."""
    lock = folder / LOCK
    if not lock.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{lock.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as database:
            database.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    except sqlite3.DatabaseError:  # somebody else's file
        return False
    return False


def summary_of(name: str, folder: Path, database: sqlite3.Connection | None = None) -> Summary:
    """Return a study's line.

    Args:
        name: what the list calls it.
        folder: where it is.
        database: an open connection to its journal; None opens one for the moment.
    """
    try:
        with _opened(folder, database) as journal:
            (version,) = journal.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                why = f"its format is {version}; this turnout reads {VERSION}" if version else "it holds no study yet"
                return Summary(name=name, study=name, state=UNREADABLE, problem=why)
            if has_other_tables(journal):
                return Summary(
                    name=name, study=name, state=UNREADABLE, problem="it has other tables than turnout makes"
                )
            study, config = journal.execute("SELECT name, config FROM study").fetchone()
            runs = journal.execute(RUNS).fetchall()
        return _told(name, folder, name_of(study), _asked(json.loads(config)), runs)
    except (OSError, sqlite3.Error) as error:
        return Summary(name=name, study=name, state=UNREADABLE, problem=str(error))
    except UNLIKELY as error:
        why = f"it holds values that turnout did not write ({in_brief(error)})"
        return Summary(name=name, study=name, state=UNREADABLE, problem=why)


@contextmanager
def _opened(folder: Path, database: sqlite3.Connection | None) -> Iterator[sqlite3.Connection]:
    if database is not None:
        yield database
        return
    with closing(open_read_only(folder)) as opened:
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
