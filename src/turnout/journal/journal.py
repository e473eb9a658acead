"""The journal: everything a study records, in one SQLite database that can be read while it is written.

Runs of a run group advance together. One transaction writes one round of every run in the group, so a killed study
ends after a whole round.
"""

import json
import math
import sqlite3
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from turnout.checkpoint import LastModel, Save, Stored
from turnout.checkpoint.store import clean
from turnout.errors import JournalError
from turnout.journal.changed_data import CHANGED, NO_DATA, Data, check_clients, with_changes
from turnout.journal.checksums import checksum_of, update_checksums
from turnout.journal.client_facts import CLIENT_ARRAYS, ClientFacts
from turnout.journal.codec import encode_clients, encode_floats, encode_ids, encode_measures
from turnout.journal.open_database import open_for_writing, open_in_memory, reading
from turnout.journal.prepare_folder import prepare_folder
from turnout.journal.schema import ROUND_COLUMNS, transaction
from turnout.journal.start_or_resume import StudyRow, create_tables, files_of, rewind
from turnout.requests import Record
from turnout.untrusted_input import as_written

INSERT_ROUND = f"INSERT INTO round VALUES ({', '.join('?' * ROUND_COLUMNS)})"
START_COLUMNS = ("arm", "seed", "rounds", "config", "facts", "status", "started", "run_group")  # that `begin` writes
UNKNOWN = "the reason is not on record"  # the failure of a run that stored none
MEASURED = ("loss", "accuracy")  # the metrics with a column of their own


class Failure(NamedTuple):
    """Why a run failed, and the run group in which it is tried again."""

    message: str
    run_group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """One arm with one seed."""

    arm: str
    seed: int
    rounds: int
    config: dict[str, Any]  # resolved, JSON-able
    holdings: ClientFacts | None = None  # None: unknown
    run_group: int = 0  # number of its run group: runs that advance together and are saved together
    data: str | None = None  # digest of its clients' data; None: unknown
    facts: dict[str, Any] = field(default_factory=dict)  # of this run alone, beside those of the study


class Journal:
    """The record of one study. Make one with `create` or `open`; close it, or use it in a `with` block.

    A round may come with a checkpoint: files that are already on disk and are valid from this transaction on. That
    transaction is on disk when `write` returns. A power failure may lose later transactions, but only whole rounds.
    """

    def __init__(self, database: sqlite3.Connection, folder: Path | None, resources: ExitStack) -> None:
        self.folder = folder
        self.earlier: dict[str, Any] | None = None  # of a resumed study: the facts that its journal held
        self.last_models: dict[int, LastModel] = {}  # of a study in memory: by run id
        self._database = database
        self._accepts_changed_data = False
        self._last_write: dict[int, float] = {}
        self._run_facts: dict[int, dict[str, Any]] = {}  # of each run that was begun
        self._close = weakref.finalize(self, resources.close)
        try:
            self._facts = _facts(self.read("SELECT facts FROM study"), folder)
        except BaseException:
            self._close()
            raise

    @classmethod
    def create(
        cls, folder: Path | None, *, study: str, config: dict[str, Any], facts: dict[str, Any], data: Data = NO_DATA
    ) -> "Journal":
        """Start a journal, or resume the same study: unfinished runs are rewound to their last checkpoints.

        A folder that is damaged or holds another study is refused and not changed.

        Args:
            folder: the output folder; None keeps the journal in memory.
            study: the study's name.
            config: the resolved study; a folder that holds another is refused.
            facts: versions, machine, engine.
            data: digests of the data of the first runs; changed data is refused, or recorded if it is accepted.
        """
        row = StudyRow(study, _canonical(config), json.dumps(facts))
        with ExitStack() as resources, clear_errors(folder):
            if folder is None:
                database = open_in_memory()
                resources.callback(database.close)
                create_tables(database, row)
                return cls(database, None, resources.pop_all())
            lock, earlier = prepare_folder(Path(folder), row, data, resources)
            lock.sign()
            database = open_for_writing(Path(folder))
            resources.callback(database.close)
            if earlier is not None:
                rewind(database, row, earlier)
            clean(Path(folder), {stored.name for stored in files_of(database)})
            journal = cls(database, Path(folder), resources.pop_all())
            journal.earlier = None if earlier is None else earlier.facts
            journal._accepts_changed_data = data.is_accepted
            return journal

    @classmethod
    def open(cls, folder: Path) -> "Journal":
        """Open a journal for reading; another process may be writing it."""
        folder = Path(folder)
        with ExitStack() as resources, clear_errors(folder, "read"):
            database = resources.enter_context(reading(folder))
            return cls(database, folder, resources.pop_all())

    @property
    def facts(self) -> dict[str, Any]:
        """How the study is run: versions, machine, engine and the like."""
        return dict(self._facts)

    def begin(self, info: RunInfo) -> int:
        """Start a run, or resume it, and return its id."""
        self._record_changed_data(info)
        with self._transaction():
            existing = self.read("SELECT id, status FROM run WHERE arm = ? AND seed = ?", (info.arm, info.seed))
            if existing and (existing[0][0] in self._last_write or existing[0][1] == "finished"):
                raise JournalError(
                    f"The journal already holds arm {info.arm!r} with seed {info.seed}. "
                    "Give each arm a name of its own, and forget a run before starting it again."
                )
            run = self._insert(info) if not existing else int(existing[0][0])
            self._run_facts[run] = info.facts
            self._store_client_facts(run, info)
            self._database.execute("UPDATE run SET status = 'running', ended = NULL WHERE id = ?", (run,))
            update_checksums(self._database, "run", "id = ?", (run,))
        self._last_write[run] = time.perf_counter()
        return run

    def _insert(self, info: RunInfo) -> int:
        facts = json.dumps({**self._facts, **info.facts})
        values = (info.arm, info.seed, info.rounds, _canonical(info.config), facts, "running", _now())
        self._database.execute("INSERT OR IGNORE INTO arm (name) VALUES (?)", (info.arm,))
        update_checksums(self._database, "arm", "name = ?", (info.arm,))
        query = f"INSERT INTO run ({', '.join(START_COLUMNS)}) VALUES ({', '.join('?' * len(START_COLUMNS))})"
        run = self._database.execute(query, (*values, info.run_group)).lastrowid

        assert run is not None
        return run

    def _store_client_facts(self, run: int, info: RunInfo) -> None:
        """Store the facts of a run's clients, and the digest of their data."""
        if info.holdings is not None:
            check_clients(self._database, self.folder, run, len(info.holdings.sizes))
            pairs = zip(CLIENT_ARRAYS, info.holdings.encoded(), strict=True)
            values = {name: self._store_array(body) for name, body in pairs} | {"data": info.data}
            columns = ", ".join(f"{name} = ?" for name in values)
            self._database.execute(f"UPDATE run SET {columns} WHERE id = ?", (*values.values(), run))

    def _record_changed_data(self, info: RunInfo) -> None:
        """Record that a run resumes on other data than it began with; raise if that is not accepted."""
        digests = {} if info.data is None else {(info.arm, info.seed): info.data}
        data = Data(digests, self._accepts_changed_data)
        facts = with_changes(self._database, self._facts, data, f"{self.folder}:")
        if facts != self._facts:
            self.set_fact(CHANGED, facts[CHANGED])

    def _store_array(self, body: bytes | None) -> int | None:
        """Store an array and return its id; equal arrays are stored once."""
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
        """Write, in one transaction, one record per run, the checkpoint that goes with them, and failed runs."""
        now = time.perf_counter()
        rows = [_row(run, record, now - self._last_write.get(run, now)) for run, record in entries]
        with self._synced(save is not None), self._transaction():
            self._database.executemany(INSERT_ROUND, [(*row, checksum_of(*row)) for row in rows])
            if save is not None:
                self._replace_checkpoint(save)
            for run, record in entries:
                if record.finished:
                    self._end(run, "finished")
            for run, failure in failed.items():
                self._database.execute("UPDATE run SET run_group = ? WHERE id = ?", (failure.run_group, run))
                self._end(run, "failed", failure.message)
        self._last_write.update((run, now) for run, _ in entries)

    def _replace_checkpoint(self, save: Save) -> None:
        """Replace the run group's checkpoint by a new one."""
        known = self.read("SELECT files FROM checkpoint WHERE run_group = ?", (save.run_group,))
        now = [file.name for file in save.files]
        gone = [name for (names,) in known for name in json.loads(names) if name not in now]
        self._database.executemany("DELETE FROM file WHERE name = ?", [(name,) for name in gone])
        self._database.execute("DELETE FROM checkpoint WHERE run_group = ?", (save.run_group,))
        for file in (*save.files[-1:], *([] if save.models is None else [save.models])):
            self._database.execute("INSERT INTO file (name, sha256, bytes) VALUES (?, ?, ?)", file)
            update_checksums(self._database, "file", "name = ?", (file.name,))
        if now:
            values = (save.run_group, save.round, json.dumps(now))
            self._database.execute("INSERT INTO checkpoint (run_group, round, files) VALUES (?, ?, ?)", values)
            update_checksums(self._database, "checkpoint", "run_group = ?", (save.run_group,))
        if save.models is not None:
            named = [(save.models.name, run) for run in save.ended]
            self._database.executemany("UPDATE run SET model = ? WHERE id = ?", named)

    def finish(self, run: int, status: str = "finished", failure: str | None = None) -> None:
        """Mark a run as ended; a resumed study keeps all rounds of "finished" runs only."""
        with self._transaction():
            self._end(run, status, failure)

    def _end(self, run: int, status: str, failure: str | None = None) -> None:
        facts = {**self._facts, **self._run_facts.get(run, {})}
        facts |= {} if failure is None else {"failure": failure}
        values = (status, _now(), json.dumps(facts), run)
        self._database.execute("UPDATE run SET status = ?, ended = ?, facts = ? WHERE id = ?", values)
        update_checksums(self._database, "run", "id = ?", (run,))

    def checkpoint(self, run_group: int) -> tuple[Stored, ...]:
        """Return the files of a run group's checkpoint, oldest first; empty if the group starts from round 0."""
        known = self.read("SELECT files FROM checkpoint WHERE run_group = ?", (run_group,))
        with as_written(f"The journal in {self.folder}"):
            stored = {file.name: file for file in files_of(self._database)}
            return tuple(stored[name] for (names,) in known for name in json.loads(names))

    def checkpoint_round(self, run_group: int) -> int:
        """Return the round after which a run group's checkpoint was saved."""
        return int(self.read("SELECT round FROM checkpoint WHERE run_group = ?", (run_group,))[0][0])

    def finished_runs(self) -> set[tuple[str, int]]:
        """Return the (arm, seed) of every finished run."""
        return set(self.read("SELECT arm, seed FROM run WHERE status = 'finished'"))

    def finished_rounds(self) -> int:
        """Return the number of rounds of all finished runs together."""
        return int(self.read("SELECT coalesce(sum(rounds), 0) FROM run WHERE status = 'finished'")[0][0])

    def failures(self) -> dict[tuple[str, int], str]:
        """Return why runs failed, by (arm, seed)."""
        failed = self.read("SELECT arm, seed, facts FROM run WHERE status = 'failed'")
        with as_written(f"The journal in {self.folder}"):
            return {(arm, seed): str(dict(json.loads(facts)).get("failure", UNKNOWN)) for arm, seed, facts in failed}

    def runs_alone(self, run_group: int) -> dict[tuple[str, int], int]:
        """Return the run group of every run, by (arm, seed), whose group has this number or a higher one."""
        runs = self.read("SELECT arm, seed, run_group FROM run WHERE run_group >= ?", (run_group,))
        return {(arm, seed): number for arm, seed, number in runs}

    def forget(self, run: int) -> None:
        """Delete a run and its rounds, so that it can be started again."""
        with self._transaction():
            self._database.execute("DELETE FROM round WHERE run = ?", (run,))
            self._database.execute("DELETE FROM run WHERE id = ?", (run,))
        self._last_write.pop(run, None)

    def set_fact(self, name: str, value: Any) -> None:
        """Store a fact about how the study is run; every run that ends from now on carries it."""
        self._facts[name] = value
        with self._transaction():
            self._database.execute("UPDATE study SET facts = ?", (json.dumps(self._facts),))
            update_checksums(self._database, "study")

    def close(self) -> None:
        """Close the database and let others write; may be called twice."""
        self._close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with clear_errors(self.folder, "read"):
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all reads in the block see one state of the database, whatever another process commits."""
        with transaction(self._database, "BEGIN"):
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with clear_errors(self.folder), transaction(self._database, "BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def _synced(self, wanted: bool) -> Iterator[None]:
        """Make the next transaction durable: it is on disk when it returns. Does nothing if not wanted."""
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
        *(
            None if ids is None else encode_ids(ids, record.num_clients)
            for ids in (record.members, record.counted, record.kept)
        ),
        encode_clients(record),
        encode_floats(record.reused),
        encode_floats(record.client_accuracy),
        encode_floats(record.client_loss),
        encode_measures(record.personal),
        encode_floats(record.assignment),
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _plain(value: float) -> float | str:
    """Return a number for JSON, which has no NaN and no infinity: those become text that float() reads back."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _facts(rows: list[tuple[Any, ...]], folder: Path | None) -> dict[str, Any]:
    try:
        ((text,),) = rows
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise JournalError(
            f"The journal in {folder} holds no study, or one that turnout did not write; nothing was changed. "
            "Bring back a good copy, or run the study again in another output folder."
        ) from error


@contextmanager
def clear_errors(folder: Path | None, verb: str = "written") -> Iterator[None]:
    """Turn errors of the operating system and of SQLite into a message that a user can act on."""
    try:
        yield
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:  # the last: names that are not text
        where = "in memory" if folder is None else f"in {folder}"
        raise JournalError(
            f"The journal {where} cannot be {verb}: {error}. What was written before is kept. "
            "Check the disk and the permissions of the folder, and try again."
        ) from error


def _canonical(config: dict[str, Any]) -> str:
    return json.dumps(config, sort_keys=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
