"""The journal: everything a study found, in one SQLite database that can be read while it is written.

One transaction holds one round of every run that advances together, so a killed study ends after a whole round.
"""

import json
import math
import sqlite3
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from turnout.errors import JournalError
from turnout.journal.codec import encode_clients, encode_floats, encode_ids
from turnout.journal.schema import (
    FILE,
    ROUND_COLUMNS,
    TABLES,
    VERSION,
    Lock,
    is_empty,
    open_for_reading,
    open_for_writing,
)
from turnout.requests import Record

INSERT_ROUND = f"INSERT INTO round VALUES ({', '.join('?' * ROUND_COLUMNS)})"
MEASURED = ("loss", "accuracy")  # the metrics with a column of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One arm with one seed."""

    arm: str
    seed: int
    rounds: int
    config: dict[str, Any]  # resolved, JSON-able


class Journal:
    """The record of one study. Make one with `create` or `open`; close it, or use it in a `with` block."""

    def __init__(self, database: sqlite3.Connection, folder: Path | None, held: ExitStack) -> None:
        self.folder = folder
        self._database = database
        self._facts: dict[str, Any] = json.loads(self.read("SELECT facts FROM study")[0][0])
        self._last_write: dict[int, float] = {}
        self._close = weakref.finalize(self, held.close)

    @classmethod
    def create(cls, folder: Path | None, *, study: str, config: dict[str, Any], facts: dict[str, Any]) -> "Journal":
        """Start a journal, or go on with the same study: finished runs are kept, unfinished ones taken out.

        Args:
            folder: where it goes; None keeps it in memory.
            study: the study's name.
            config: the resolved study; a folder that holds another is refused.
            facts: versions, machine, engine.
        """
        with ExitStack() as held:
            if folder is None:
                database = open_for_writing(":memory:")
            else:
                folder = Path(folder)
                with _said_plainly(folder):
                    _check_folder(folder)
                    folder.mkdir(parents=True, exist_ok=True)
                    held.callback(Lock(folder).release)
                    database = open_for_writing(folder / FILE)
            held.callback(database.close)
            with _said_plainly(folder):
                _start(database, folder, (study, _canonical(config), json.dumps(facts)))
            return cls(database, folder, held.pop_all())

    @classmethod
    def open(cls, folder: Path) -> "Journal":
        """Open a journal for reading; another process may be writing it."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise JournalError(f"{folder} holds no {FILE}. Name the folder that turnout run wrote to.")
        with ExitStack() as held, _said_plainly(Path(folder), "read"):
            database = open_for_reading(path)
            held.callback(database.close)
            return cls(database, Path(folder), held.pop_all())

    def begin(self, info: RunInfo) -> int:
        """Start a run and return its id."""
        facts, now = json.dumps(self._facts), _now()
        values = (info.arm, info.seed, info.rounds, _canonical(info.config), facts, "running", now)
        with self._transaction():
            if self.read("SELECT 1 FROM run WHERE arm = ? AND seed = ?", (info.arm, info.seed)):
                raise JournalError(
                    f"The journal already holds arm {info.arm!r} with seed {info.seed}. "
                    "Give each arm a name of its own, and forget a run before starting it again."
                )
            self._database.execute("INSERT OR IGNORE INTO arm (name) VALUES (?)", (info.arm,))
            run = self._database.execute(
                "INSERT INTO run (arm, seed, rounds, config, facts, status, started) VALUES (?, ?, ?, ?, ?, ?, ?)",
                values,
            ).lastrowid
        assert run is not None
        self._last_write[run] = time.perf_counter()
        return run

    def write(self, entries: Sequence[tuple[int, Record]]) -> None:
        """Write one record for each run given, in one transaction."""
        now = time.perf_counter()
        rows = [_row(run, record, now - self._last_write.get(run, now)) for run, record in entries]
        with self._transaction():
            self._database.executemany(INSERT_ROUND, rows)
        self._last_write.update((run, now) for run, _ in entries)

    def finish(self, run: int, status: str = "finished") -> None:
        """Mark a run as ended; only those that are "finished" are kept when the study is run again."""
        with self._transaction():
            self._database.execute(
                "UPDATE run SET status = ?, ended = ?, facts = ? WHERE id = ?",
                (status, _now(), json.dumps(self._facts), run),
            )

    def finished_runs(self) -> set[tuple[str, int]]:
        """Return the (arm, seed) of every finished run."""
        return set(self.read("SELECT arm, seed FROM run WHERE status = 'finished'"))

    def forget(self, run: int) -> None:
        """Take a run and its rounds out, so that it can be started again."""
        with self._transaction():
            _forget(self._database, run)
        self._last_write.pop(run, None)

    def set_fact(self, name: str, value: Any) -> None:
        """Keep something worth knowing of how the study was run; it goes with every run that ends from now on."""
        self._facts[name] = value
        with self._transaction():
            self._database.execute("UPDATE study SET facts = ?", (json.dumps(self._facts),))

    def close(self) -> None:
        """Close the database and let others write; may be called twice."""
        self._close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._database.execute(query, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several reads see one state, whatever is written meanwhile."""
        with _transaction(self._database, "BEGIN"):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _said_plainly(self.folder), _transaction(self._database, "BEGIN IMMEDIATE"):
            yield


def _start(database: sqlite3.Connection, folder: Path | None, study: tuple[str, str, str]) -> None:
    """Make the tables, or take out what the same study left unfinished."""
    with _transaction(database, "BEGIN IMMEDIATE"):
        if is_empty(database):
            for statement in TABLES.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute("INSERT INTO study VALUES (?, ?, ?)", study)
            return
        name, config = database.execute("SELECT name, config FROM study").fetchone()
        if (name, config) != study[:2]:
            raise JournalError(
                f"{folder} already holds {_difference(name, config, study)}; nothing was changed. "
                "Choose another folder with --out."
            )
        database.execute("UPDATE study SET facts = ?", (study[2],))
        for (run,) in database.execute("SELECT id FROM run WHERE status != 'finished'").fetchall():
            _forget(database, run)


def _difference(name: str, config: str, study: tuple[str, str, str]) -> str:
    if name != study[0]:
        return f"another study, {name!r}"
    old, new = json.loads(config), json.loads(study[1])
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return f"the study {name!r} with other settings ({', '.join(keys)})"


def _forget(database: sqlite3.Connection, run: int) -> None:
    database.execute("DELETE FROM round WHERE run = ?", (run,))
    database.execute("DELETE FROM run WHERE id = ?", (run,))


def _row(run: int, record: Record, wall_seconds: float) -> tuple[Any, ...]:
    """Return one row of the table `round`, in the order of its columns."""
    metrics, costs = record.metrics, record.costs
    others = {name: value for name, value in metrics.items() if name not in MEASURED}
    return (
        run,
        record.round,
        any(name in metrics for name in MEASURED),
        _number(metrics.get("loss")),
        _number(metrics.get("accuracy")),
        json.dumps({name: _plain(value) for name, value in others.items()}) if others else None,
        record.num_clients,
        len(record.up),
        len(record.asked),
        len(record.answered),
        costs.bytes_down,
        costs.bytes_up,
        costs.gradient_evaluations,
        costs.probe_evaluations,
        costs.sim_seconds,
        wall_seconds,
        json.dumps(record.events) if record.events else None,
        json.dumps(record.rejected) if record.rejected else None,
        encode_ids(record.up, record.num_clients),
        encode_clients(record),
        encode_floats(record.client_accuracy),
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _plain(value: float) -> float | str:
    """JSON has no NaN and no infinity: those are written as text that float() reads back."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


@contextmanager
def _transaction(database: sqlite3.Connection, begin: str) -> Iterator[None]:
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def _said_plainly(folder: Path | None, verb: str = "written") -> Iterator[None]:
    """Turn what the system or SQLite says into something a user can act on."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        where = "in memory" if folder is None else f"in {folder}"
        raise JournalError(
            f"The journal {where} cannot be {verb}: {error}. What was written before is kept. "
            "Check the disk and the permissions of the folder, and try again."
        ) from error


def _check_folder(folder: Path) -> None:
    """Raise if the folder holds things that are not turnout's."""
    if folder.exists() and not folder.is_dir():
        raise JournalError(f"{folder} is a file; nothing was changed. Choose a folder with --out.")
    if not folder.is_dir() or (folder / FILE).exists():
        return
    others = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    if others:
        shown = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        raise JournalError(
            f"{folder} holds other files ({shown}) and no journal; nothing was changed. "
            "Choose an empty or new folder with --out."
        )


def _canonical(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
