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
from hashlib import blake2b
from pathlib import Path
from typing import Any

from turnout.checkpoint import Save, Stored
from turnout.checkpoint.keeper import clean
from turnout.errors import JournalError
from turnout.journal.codec import encode_clients, encode_floats, encode_ids
from turnout.journal.continuing import files_of, start
from turnout.journal.holdings import HELD, Holdings
from turnout.journal.schema import FILE, ROUND_COLUMNS, Lock, open_for_reading, open_for_writing, transaction
from turnout.journal.sealing import checksum_of, seal
from turnout.requests import Record
from turnout.strangers import as_written

INSERT_ROUND = f"INSERT INTO round VALUES ({', '.join('?' * ROUND_COLUMNS)})"
BEGUN = (
    "arm",
    "seed",
    "rounds",
    "config",
    "facts",
    "status",
    "started",
    "party",
    *HELD,
)  # what `begin` writes of a run
MEASURED = ("loss", "accuracy")  # the metrics with a column of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One arm with one seed."""

    arm: str
    seed: int
    rounds: int
    config: dict[str, Any]  # resolved, JSON-able
    holdings: Holdings | None = None  # None: unknown
    party: int = 0  # runs of one party advance together and are saved together


class Journal:
    """The record of one study. Make one with `create` or `open`; close it, or use it in a `with` block.

    With a round may come a checkpoint: files that are on the disk already and count from this transaction on. That
    transaction is on the disk, too, when `write` returns; those between may be lost with the power, in whole rounds.
    """

    def __init__(self, database: sqlite3.Connection, folder: Path | None, held: ExitStack) -> None:
        self.folder = folder
        self.earlier: dict[str, Any] | None = None  # the facts that were there, of a study that goes on
        self._database = database
        self._last_write: dict[int, float] = {}
        self._close = weakref.finalize(self, held.close)
        try:
            self._facts = _facts(self.read("SELECT facts FROM study"), folder)
        except BaseException:
            self._close()
            raise

    @classmethod
    def create(cls, folder: Path | None, *, study: str, config: dict[str, Any], facts: dict[str, Any]) -> "Journal":
        """Start a journal, or go on with the same study: unfinished runs are taken back to their checkpoints.

        What is there is checked first; a folder that is damaged or holds another study is left as it is.

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
                with told_plainly(folder):
                    _check_folder(folder)
                    folder.mkdir(parents=True, exist_ok=True)
                    held.callback(Lock(folder).release)
                    database = open_for_writing(folder / FILE)
            held.callback(database.close)
            with told_plainly(folder):
                with as_written(f"The journal in {folder}"):
                    earlier = start(database, folder, (study, _canonical(config), json.dumps(facts)))
                if folder is not None:
                    clean(folder, {stored.name for stored in files_of(database)})
            journal = cls(database, folder, held.pop_all())
            journal.earlier = earlier
            return journal

    @classmethod
    def open(cls, folder: Path) -> "Journal":
        """Open a journal for reading; another process may be writing it."""
        path = Path(folder) / FILE
        if not path.is_file():
            raise JournalError(f"{folder} holds no {FILE}. Name the folder that turnout run wrote to.")
        with ExitStack() as held, told_plainly(Path(folder), "read"):
            database = open_for_reading(path)
            held.callback(database.close)
            return cls(database, Path(folder), held.pop_all())

    @property
    def facts(self) -> dict[str, Any]:
        """How and on what the study is run."""
        return dict(self._facts)

    def begin(self, info: RunInfo) -> int:
        """Start a run, or go on with it, and return its id."""
        with self._transaction():
            found = self.read("SELECT id, status FROM run WHERE arm = ? AND seed = ?", (info.arm, info.seed))
            if found and (found[0][0] in self._last_write or found[0][1] == "finished"):
                raise JournalError(
                    f"The journal already holds arm {info.arm!r} with seed {info.seed}. "
                    "Give each arm a name of its own, and forget a run before starting it again."
                )
            run = self._insert(info) if not found else int(found[0][0])
            self._database.execute("UPDATE run SET status = 'running', ended = NULL WHERE id = ?", (run,))
            seal(self._database, "run", "id = ?", (run,))
        self._last_write[run] = time.perf_counter()
        return run

    def _insert(self, info: RunInfo) -> int:
        values = (info.arm, info.seed, info.rounds, _canonical(info.config), json.dumps(self._facts), "running", _now())
        bodies = (None, None, None) if info.holdings is None else info.holdings.encoded()
        self._database.execute("INSERT OR IGNORE INTO arm (name) VALUES (?)", (info.arm,))
        seal(self._database, "arm", "name = ?", (info.arm,))
        run = self._database.execute(
            f"INSERT INTO run ({', '.join(BEGUN)}) VALUES ({', '.join('?' * len(BEGUN))})",
            (*values, info.party, *(self._kept(body) for body in bodies)),
        ).lastrowid
        assert run is not None
        return run

    def _kept(self, body: bytes | None) -> int | None:
        """Keep an array and return its id; equal arrays are kept once."""
        if body is None:
            return None
        digest = blake2b(body, digest_size=16).digest()
        self._database.execute("INSERT OR IGNORE INTO array (digest, body) VALUES (?, ?)", (digest, body))
        return int(self.read("SELECT id FROM array WHERE digest = ?", (digest,))[0][0])

    def write(self, entries: Sequence[tuple[int, Record]], save: Save | None = None) -> None:
        """Write one record for each run given, and what was saved with them, in one transaction."""
        now = time.perf_counter()
        rows = [_row(run, record, now - self._last_write.get(run, now)) for run, record in entries]
        with self._synced(save is not None), self._transaction():
            self._database.executemany(INSERT_ROUND, [(*row, checksum_of(*row)) for row in rows])
            if save is not None:
                self._refer(save)
            for run, record in entries:
                if record.finished:
                    self._end(run, "finished")
        self._last_write.update((run, now) for run, _ in entries)

    def _refer(self, save: Save) -> None:
        """Let a save count in place of the one before it."""
        known = self.read("SELECT files FROM checkpoint WHERE party = ?", (save.party,))
        now = [file.name for file in save.files]
        gone = [name for (names,) in known for name in json.loads(names) if name not in now]
        self._database.executemany("DELETE FROM file WHERE name = ?", [(name,) for name in gone])
        self._database.execute("DELETE FROM checkpoint WHERE party = ?", (save.party,))
        for file in (*save.files[-1:], *([] if save.models is None else [save.models])):
            self._database.execute("INSERT INTO file (name, sha256, bytes) VALUES (?, ?, ?)", file)
            seal(self._database, "file", "name = ?", (file.name,))
        if now:
            values = (save.party, save.round, json.dumps(now))
            self._database.execute("INSERT INTO checkpoint (party, round, files) VALUES (?, ?, ?)", values)
            seal(self._database, "checkpoint", "party = ?", (save.party,))
        if save.models is not None:
            named = [(save.models.name, run) for run in save.ended]
            self._database.executemany("UPDATE run SET model = ? WHERE id = ?", named)

    def finish(self, run: int, status: str = "finished") -> None:
        """Mark a run as ended; only those that are "finished" are kept whole when the study is run again."""
        with self._transaction():
            self._end(run, status)

    def _end(self, run: int, status: str) -> None:
        values = (status, _now(), json.dumps(self._facts), run)
        self._database.execute("UPDATE run SET status = ?, ended = ?, facts = ? WHERE id = ?", values)
        seal(self._database, "run", "id = ?", (run,))

    def checkpoint(self, party: int) -> tuple[Stored, ...]:
        """Return the files that hold where a party stands, oldest first; none if it has to start afresh."""
        known = self.read("SELECT files FROM checkpoint WHERE party = ?", (party,))
        with as_written(f"The journal in {self.folder}"):
            stored = {file.name: file for file in files_of(self._database)}
            return tuple(stored[name] for (names,) in known for name in json.loads(names))

    def finished_runs(self) -> set[tuple[str, int]]:
        """Return the (arm, seed) of every finished run."""
        return set(self.read("SELECT arm, seed FROM run WHERE status = 'finished'"))

    def forget(self, run: int) -> None:
        """Take a run and its rounds out, so that it can be started again."""
        with self._transaction():
            self._database.execute("DELETE FROM round WHERE run = ?", (run,))
            self._database.execute("DELETE FROM run WHERE id = ?", (run,))
        self._last_write.pop(run, None)

    def set_fact(self, name: str, value: Any) -> None:
        """Keep something worth knowing of how the study was run; it goes with every run that ends from now on."""
        self._facts[name] = value
        with self._transaction():
            self._database.execute("UPDATE study SET facts = ?", (json.dumps(self._facts),))
            seal(self._database, "study")

    def close(self) -> None:
        """Close the database and let others write; may be called twice."""
        self._close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with told_plainly(self.folder, "read"):
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let several reads see one state, whatever is written meanwhile."""
        with transaction(self._database, "BEGIN"):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with told_plainly(self.folder), transaction(self._database, "BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def _synced(self, wanted: bool) -> Iterator[None]:
        """Let the next transaction be on the disk when it is done, if that is wanted."""
        if not wanted:
            yield
            return
        self._database.execute("PRAGMA synchronous = FULL")
        try:
            yield
        finally:
            self._database.execute("PRAGMA synchronous = NORMAL")


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


def _facts(rows: list[tuple[Any, ...]], folder: Path | None) -> dict[str, Any]:
    try:
        ((text,),) = rows
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise JournalError(
            f"The journal in {folder} holds no study, or one that turnout did not write; nothing was changed. "
            "Bring back a good copy, or run the study again in another folder with --out."
        ) from error


@contextmanager
def told_plainly(folder: Path | None, verb: str = "written") -> Iterator[None]:
    """Turn what the system or SQLite says into something a user can act on."""
    try:
        yield
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # the last: names that are no text
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
