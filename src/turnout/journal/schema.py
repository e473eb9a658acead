"""The tables of a journal, and the check that a database is a journal of this version."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache

from turnout.errors import JournalError

FILE = "journal.sqlite"
VERSION = 11

TABLES = """
CREATE TABLE study (name TEXT NOT NULL, config TEXT NOT NULL, facts TEXT NOT NULL, checksum BLOB);
CREATE TABLE arm (position INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, checksum BLOB);
CREATE TABLE file (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL, checksum BLOB);
CREATE TABLE checkpoint (run_group INTEGER PRIMARY KEY, round INTEGER NOT NULL, files TEXT NOT NULL, checksum BLOB);
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
    client_names INTEGER REFERENCES array (id),
    client_groups INTEGER REFERENCES array (id),
    drift INTEGER REFERENCES array (id),
    data TEXT,
    run_group INTEGER NOT NULL,
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
    members BLOB,
    counted BLOB,
    kept BLOB,
    clients BLOB,
    reused BLOB,
    client_accuracy BLOB,
    client_loss BLOB,
    personal BLOB,
    assignment BLOB,
    checksum BLOB NOT NULL,
    PRIMARY KEY (run, round)
);
"""
ROUND_COLUMNS = 29


def check_version(database: sqlite3.Connection, where: str) -> None:
    """Raise if this is another program's database, or a journal of another version."""
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        has_study_table = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'study'").fetchone()
    except sqlite3.OperationalError:  # the disk's fault, not the file's
        raise
    except sqlite3.DatabaseError as error:
        raise JournalError(
            f"{where} cannot be read as a journal ({error}); nothing was changed. Choose another output folder."
        ) from None
    if not has_study_table:
        raise JournalError(
            f"{where} is a database but not a journal; nothing was changed. Choose another output folder."
        )
    if version < VERSION:
        raise JournalError(
            f"{where} was written by an earlier turnout: its format is {version}, this turnout reads {VERSION}; "
            "nothing was changed. Run the study again, in another output folder."
        )
    if version == VERSION and has_other_tables(database):
        raise JournalError(
            f"{where} has other tables than turnout makes; nothing was changed. "
            "Bring back a good copy, or run the study again in another output folder."
        )
    if version > VERSION:
        raise JournalError(
            f"{where} was written by a later turnout: its format is {version}, this turnout reads up to {VERSION}; "
            "nothing was changed. Upgrade turnout, or choose another output folder."
        )


def has_other_tables(database: sqlite3.Connection) -> bool:
    """Return whether the tables differ from those that turnout creates; a hostile view can return endless rows."""
    return _objects(database) != _own_objects()


@lru_cache(maxsize=1)
def _own_objects() -> frozenset[tuple[str, str, str]]:
    """Return the database objects that turnout creates; an added view or trigger, or a missing table, differs."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(TABLES)
        return _objects(database)


def _objects(database: sqlite3.Connection) -> frozenset[tuple[str, str, str]]:
    return frozenset(database.execute("SELECT type, name, sql FROM sqlite_master").fetchall())


@contextmanager
def transaction(database: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Commit everything that the block does, or roll all of it back."""
    database.execute(begin)
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
