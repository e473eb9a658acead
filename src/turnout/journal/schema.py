"""The tables of a journal, and how its database is opened."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from turnout.errors import JournalError
from turnout.journal.sealing import checksum_of

FILE = "journal.sqlite"
LOCK, PID = ".lock", ".pid"
VERSION = 3
BUSY_MILLISECONDS = 10_000

TABLES = """
CREATE TABLE study (name TEXT NOT NULL, config TEXT NOT NULL, facts TEXT NOT NULL, checksum BLOB);
CREATE TABLE arm (position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, checksum BLOB);
CREATE TABLE file (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, checksum BLOB);
CREATE TABLE checkpoint (party INTEGER PRIMARY KEY, round INTEGER NOT NULL, files TEXT NOT NULL, checksum BLOB);
CREATE TABLE array (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL);
CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    arm TEXT NOT NULL REFERENCES arm (name),
    seed INTEGER NOT NULL,
    rounds INTEGER NOT NULL,
    config TEXT NOT NULL,
    facts TEXT NOT NULL,
    status TEXT NOT NULL,
    started TEXT NOT NULL,
    ended TEXT,
    sizes INTEGER REFERENCES array (id),
    label_counts INTEGER REFERENCES array (id),
    seconds_per_step INTEGER REFERENCES array (id),
    party INTEGER NOT NULL,
    model TEXT REFERENCES file (name),
    checksum BLOB,
    UNIQUE (arm, seed)
);
CREATE TABLE round (
    run INTEGER NOT NULL REFERENCES run (id),
    round INTEGER NOT NULL,
    evaluated INTEGER NOT NULL,
    loss REAL,
    accuracy REAL,
    metrics TEXT,
    num_clients INTEGER NOT NULL,
    up_count INTEGER NOT NULL,
    asked_count INTEGER NOT NULL,
    answered_count INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL,
    bytes_up INTEGER NOT NULL,
    gradient_evaluations INTEGER NOT NULL,
    probe_evaluations INTEGER NOT NULL,
    sim_seconds REAL NOT NULL,
    wall_seconds REAL NOT NULL,
    events TEXT,
    rejected TEXT,
    up BLOB NOT NULL,
    clients BLOB,
    client_accuracy BLOB,
    checksum BLOB NOT NULL,
    PRIMARY KEY (run, round)
);
"""
ROUND_COLUMNS = 22


class Lock:
    """One writer per folder. The system releases it when the process ends, however it ends.

    The lock is an SQLite transaction on an empty file: it works wherever SQLite does, between processes and within
    one, and forked workers do not inherit it.
    """

    def __init__(self, folder: Path) -> None:
        self._who = folder / PID
        self._held = sqlite3.connect(folder / LOCK, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._held.execute("BEGIN EXCLUSIVE")
            self._who.unlink(missing_ok=True)  # a link in a stranger's folder would be written through
            self._who.write_text(f"{os.getpid()}\n")
        except BaseException as error:
            self._held.close()
            if not (isinstance(error, sqlite3.OperationalError) and "locked" in str(error)):
                raise
            raise JournalError(
                f"{folder} is being written by another run{_process(self._who)}; nothing was changed. "
                "Wait until it ends, or choose another folder with --out."
            ) from None

    def release(self) -> None:
        """Let others write."""
        with suppress(OSError):
            self._who.unlink(missing_ok=True)
        self._held.close()


def _process(who: Path) -> str:
    """Return which process it is, where it has said so."""
    try:
        return f", process {int(who.read_text())}"
    except (OSError, ValueError):
        return ""


def open_for_writing(target: Path | str) -> sqlite3.Connection:
    """Open or create a database that one process writes while others read."""
    database = _connect(str(target), uri=False)
    try:
        check_version(database, str(target))
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.create_function("checksum_of", -1, checksum_of, deterministic=True)
    except BaseException:
        database.close()
        raise
    return database


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a journal that may be being written; works on a read-only disk too."""
    address = path.absolute().as_uri()
    database = _connect(address + "?mode=rw", uri=True)
    try:
        try:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:  # no place for SQLite's own files beside it
            database.close()
            database = _connect(address + "?immutable=1", uri=True)
        check_version(database, str(path))
        if is_empty(database):
            raise JournalError(f"{path} holds no study yet. Start one with turnout run.")
        database.execute("PRAGMA query_only = ON")
    except BaseException:
        database.close()
        raise
    return database


def is_empty(database: sqlite3.Connection) -> bool:
    """Whether the tables are still to be made."""
    return not database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()


def _connect(target: str, *, uri: bool) -> sqlite3.Connection:
    database = sqlite3.connect(target, isolation_level=None, check_same_thread=False, uri=uri)
    try:
        database.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        database.execute("PRAGMA trusted_schema = OFF")  # a stranger's tables call no functions
    except BaseException:
        database.close()
        raise
    return database


def check_version(database: sqlite3.Connection, where: str) -> None:
    """Raise if this is another program's database, or a later turnout's."""
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        known = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'study'").fetchone()
        foreign = not known and not is_empty(database)
    except sqlite3.OperationalError:  # the disk's fault, not the file's
        raise
    except sqlite3.DatabaseError as error:
        raise JournalError(
            f"{where} cannot be read as a journal ({error}); nothing was changed. Choose another folder with --out."
        ) from None
    if foreign:
        raise JournalError(
            f"{where} is a database but not a journal; nothing was changed. Choose another folder with --out."
        )
    if known and version < VERSION:
        raise JournalError(
            f"{where} was written by an earlier turnout: its format is {version}, this turnout reads {VERSION}; "
            "nothing was changed. Run the study again, in another folder with --out."
        )
    if version == VERSION and known and has_other_tables(database):
        raise JournalError(
            f"{where} has other tables than turnout makes; nothing was changed. "
            "Bring back a good copy, or run the study again in another folder with --out."
        )
    if version > VERSION:
        raise JournalError(
            f"{where} was written by a later turnout: its format is {version}, this turnout reads up to {VERSION}; "
            "nothing was changed. Upgrade turnout, or choose another folder with --out."
        )


def has_other_tables(database: sqlite3.Connection) -> bool:
    """Whether a journal of this version is not as turnout makes it: a view in a table's place can be endless."""
    return _objects(database) != _made()


@lru_cache(maxsize=1)
def _made() -> frozenset[tuple[str, str, str]]:
    """Return what turnout's own tables look like in a database: a view, a trigger or a table that lacks is seen."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(TABLES)
        return _objects(database)


def _objects(database: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    return frozenset(database.execute("SELECT type, name, sql FROM sqlite_master").fetchall())


@contextmanager
def transaction(database: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Let all of what is done happen, or nothing of it."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
