"""The journal: everything a study found, in one SQLite database that can be read while it is written.

One transaction holds one round of every run that advances together, so a killed study ends after a whole round.
"""

import json
import math
import sqlite3
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from turnout.checkpoint import LastModel, Save, Stored
from turnout.checkpoint.store import clean
from turnout.errors import JournalError
from turnout.journal.changed_data import CHANGED, NO_DATA, Data, check_clients, with_changes
from turnout.journal.checksums import checksum_of, seal
from turnout.journal.claim_folder import claim
from turnout.journal.client_facts import HELD, ClientFacts
from turnout.journal.codec import encode_clients, encode_floats, encode_ids
from turnout.journal.opening import open_for_writing, open_in_memory, reading
from turnout.journal.schema import ROUND_COLUMNS, transaction
from turnout.journal.start_or_resume import Told, files_of, fill, go_on
from turnout.requests import Record
from turnout.untrusted_input import as_written

INSERT_ROUND = f"INSERT INTO round VALUES ({', '.join('?' * ROUND_COLUMNS)})"
BEGUN = ("arm", "seed", "rounds", "config", "facts", "status", "started", "party")  # what `begin` writes of a run
UNKNOWN = "the reason is not on record"  # why a run failed
MEASURED = ("loss", "accuracy")  # the metrics with a column of their own


class Failure(NamedTuple):
    """Why a run failed, and the party it is in when it is tried again."""

    message: str
    party: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One arm with one seed."""

    arm: str
    seed: int
    rounds: int
    config: dict[str, Any]  # resolved, JSON-able
    holdings: ClientFacts | None = None  # None: unknown
    party: int = 0  # runs of one party advance together and are saved together
    data: str | None = None  # a digest of what its clients hold; None: unknown


class Journal:
    """The record of one study. Make one with `create` or `open`; close it, or use it in a `with` block.

    With a round may come a checkpoint: files that are on the disk already and count from this transaction on. That
    transaction is on the disk, too, when `write` returns; those between may be lost with the power, in whole rounds.
    """

    def __init__(self, database: sqlite3.Connection, folder: Path | None, held: ExitStack) -> None:
        self.folder = folder
        self.earlier: dict[str, Any] | None = None  # the facts that were there, of a study that goes on
        self.last_models: dict[int, LastModel] = {}  # of a study that is kept in memory, by run
        self._database = database
        self._accepts_changed_data = False
        self._last_write: dict[int, float] = {}
        self._close = weakref.finalize(self, held.close)
        try:
            self._facts = _facts(self.read("SELECT facts FROM study"), folder)
        except BaseException:
            self._close()
            raise

    @classmethod
    def create(
        cls, folder: Path | None, *, study: str, config: dict[str, Any], facts: dict[str, Any], data: Data = NO_DATA
    ) -> "Journal":
        """Start a journal, or go on with the same study: unfinished runs are taken back to their checkpoints.

        What is there is checked first; a folder that is damaged or holds another study is left as it is.

        Args:
            folder: where it goes; None keeps it in memory.
            study: the study's name.
            config: the resolved study; a folder that holds another is refused.
            facts: versions, machine, engine.
            data: digests of the data of the first runs; a folder that began with other data is refused, or noted.
        """
        told = Told(study, _canonical(config), json.dumps(facts))
        with ExitStack() as held, told_plainly(folder):
            if folder is None:
                database = open_in_memory()
                held.callback(database.close)
                fill(database, told)
                return cls(database, None, held.pop_all())
            lock, earlier = claim(Path(folder), told, data, held)
            lock.sign()
            database = open_for_writing(Path(folder))
            held.callback(database.close)
            if earlier is not None:
                go_on(database, told, earlier)
            clean(Path(folder), {stored.name for stored in files_of(database)})
            journal = cls(database, Path(folder), held.pop_all())
            journal.earlier = None if earlier is None else earlier.facts
            journal._accepts_changed_data = data.is_accepted
            return journal

    @classmethod
    def open(cls, folder: Path) -> "Journal":
        """Open a journal for reading; another process may be writing it."""
        folder = Path(folder)
        with ExitStack() as held, told_plainly(folder, "read"):
            database = held.enter_context(reading(folder))
            return cls(database, folder, held.pop_all())

    @property
    def facts(self) -> dict[str, Any]:
        """How and on what the study is run."""
        return dict(self._facts)

    def begin(self, info: RunInfo) -> int:
        """Start a run, or go on with it, and return its id."""
        self._note_changed_data(info)
        with self._transaction():
            found = self.read("SELECT id, status FROM run WHERE arm = ? AND seed = ?", (info.arm, info.seed))
            if found and (found[0][0] in self._last_write or found[0][1] == "finished"):
                raise JournalError(
                    f"The journal already holds arm {info.arm!r} with seed {info.seed}. "
                    "Give each arm a name of its own, and forget a run before starting it again."
                )
            run = self._insert(info) if not found else int(found[0][0])
            self._hold(run, info)
            self._database.execute("UPDATE run SET status = 'running', ended = NULL WHERE id = ?", (run,))
            seal(self._database, "run", "id = ?", (run,))
        self._last_write[run] = time.perf_counter()
        return run

    def _insert(self, info: RunInfo) -> int:
        values = (info.arm, info.seed, info.rounds, _canonical(info.config), json.dumps(self._facts), "running", _now())
        self._database.execute("INSERT OR IGNORE INTO arm (name) VALUES (?)", (info.arm,))
        seal(self._database, "arm", "name = ?", (info.arm,))
        run = self._database.execute(
            f"INSERT INTO run ({', '.join(BEGUN)}) VALUES ({', '.join('?' * len(BEGUN))})", (*values, info.party)
        ).lastrowid
        assert run is not None
        return run

    def _hold(self, run: int, info: RunInfo) -> None:
        """Keep what a run's clients hold, and a digest of it."""
        if info.holdings is not None:
            check_clients(self._database, self.folder, run, len(info.holdings.sizes))
            pairs = zip(HELD, info.holdings.encoded(), strict=True)
            kept = {name: self._kept(body) for name, body in pairs} | {"data": info.data}
            columns = ", ".join(f"{name} = ?" for name in kept)
            self._database.execute(f"UPDATE run SET {columns} WHERE id = ?", (*kept.values(), run))

    def _note_changed_data(self, info: RunInfo) -> None:
        """Raise, or note where that is accepted, that a run goes on with other data than it began with."""
        digests = {} if info.data is None else {(info.arm, info.seed): info.data}
        data = Data(digests, self._accepts_changed_data)
        noted = with_changes(self._database, self._facts, data, f"{self.folder}:")
        if noted != self._facts:
            self.set_fact(CHANGED, noted[CHANGED])

    def _kept(self, body: bytes | None) -> int | None:
        """Keep an array and return its id; equal arrays are kept once."""
        if body is None:
            return None
        digest = blake2b(body, digest_size=16).digest()
        self._database.execute("INSERT OR IGNORE INTO array (digest, body) VALUES (?, ?)", (digest, body))
        return int(self.read("SELECT id FROM array WHERE digest = ?", (digest,))[0][0])

    def write(
        self,
        entries: Sequence[tuple[int, Record]],
        save: Save | None = None,
        failed: Mapping[int, Failure] = MappingProxyType({}),
    ) -> None:
        """Write one record for each run given, what was saved with them, and which runs failed, in one transaction."""
        now = time.perf_counter()
        rows = [_row(run, record, now - self._last_write.get(run, now)) for run, record in entries]
        with self._synced(save is not None), self._transaction():
            self._database.executemany(INSERT_ROUND, [(*row, checksum_of(*row)) for row in rows])
            if save is not None:
                self._refer(save)
            for run, record in entries:
                if record.finished:
                    self._end(run, "finished")
            for run, failure in failed.items():
                self._database.execute("UPDATE run SET party = ? WHERE id = ?", (failure.party, run))
                self._end(run, "failed", failure.message)
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

    def finish(self, run: int, status: str = "finished", failure: str | None = None) -> None:
        """Mark a run as ended; only those that are "finished" are kept whole when the study is run again."""
        with self._transaction():
            self._end(run, status, failure)

    def _end(self, run: int, status: str, failure: str | None = None) -> None:
        facts = self._facts if failure is None else {**self._facts, "failure": failure}
        values = (status, _now(), json.dumps(facts), run)
        self._database.execute("UPDATE run SET status = ?, ended = ?, facts = ? WHERE id = ?", values)
        seal(self._database, "run", "id = ?", (run,))

    def checkpoint(self, party: int) -> tuple[Stored, ...]:
        """Return the files that hold where a party stands, oldest first; none if it has to start afresh."""
        known = self.read("SELECT files FROM checkpoint WHERE party = ?", (party,))
        with as_written(f"The journal in {self.folder}"):
            stored = {file.name: file for file in files_of(self._database)}
            return tuple(stored[name] for (names,) in known for name in json.loads(names))

    def checkpoint_round(self, party: int) -> int:
        """Return the round that a party's checkpoint was made after."""
        return int(self.read("SELECT round FROM checkpoint WHERE party = ?", (party,))[0][0])

    def finished_runs(self) -> set[tuple[str, int]]:
        """Return the (arm, seed) of every finished run."""
        return set(self.read("SELECT arm, seed FROM run WHERE status = 'finished'"))

    def failures(self) -> dict[tuple[str, int], str]:
        """Return why runs failed, by (arm, seed)."""
        found = self.read("SELECT arm, seed, facts FROM run WHERE status = 'failed'")
        with as_written(f"The journal in {self.folder}"):
            return {(arm, seed): str(dict(json.loads(facts)).get("failure", UNKNOWN)) for arm, seed, facts in found}

    def runs_alone(self, party: int) -> dict[tuple[str, int], int]:
        """Return the (arm, seed) and party of every run whose party has this number or a higher one."""
        found = self.read("SELECT arm, seed, party FROM run WHERE party >= ?", (party,))
        return {(arm, seed): number for arm, seed, number in found}

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


def _canonical(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
