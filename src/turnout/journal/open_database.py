"""Open a journal's database safely, in a folder that may come from an untrusted source.

turnout creates its databases in WAL mode, so SQLite never writes a rollback journal beside them. A folder that holds a
rollback journal is refused before SQLite opens it: the file could name any of the user's files, and SQLite would
delete that file.

Reading changes no byte of a folder. If no process is writing, the database is read as it is, or, if a killed process
left a write-ahead log, from a copy of both files. If a process is writing, readers use SQLite's own locks.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from turnout.checkpoint.store import FOLDER, MODELS
from turnout.errors import JournalError
from turnout.journal.checksums import checksum_of
from turnout.journal.locking import LOCK, is_being_written, nobody_writing
from turnout.journal.schema import FILE, check_version
from turnout.safe_files import is_own_file, is_own_folder, written

LOG, INDEX, ROLLBACK = f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal"
BUSY_MILLISECONDS = 10_000
MAGIC, WAL_MODE, MODE_AT = b"SQLite format 3\0", b"\x02\x02", slice(18, 20)  # of a database's header


def check_own_files(folder: Path) -> None:
    """Raise if one of turnout's file names in a folder is a link, or if the folder holds a rollback journal."""
    if os.path.lexists(folder / ROLLBACK):
        raise JournalError(
            f"{folder} holds {ROLLBACK}, a rollback journal, which turnout never writes and which can make SQLite "
            "delete files elsewhere; nothing was changed. Remove it, or bring back a good copy of the folder."
        )
    for name in (FILE, LOG, INDEX, LOCK):
        is_own_file(folder / name)
    for name in (FOLDER, MODELS):
        is_own_folder(folder / name)


def check_single_names(folder: Path) -> None:
    """Raise if a file that is written in place has a hard link elsewhere, which would change with it."""
    for name in (FILE, LOG, INDEX):
        if is_own_file(folder / name) and (folder / name).stat().st_nlink > 1:
            raise JournalError(
                f"{folder / name} is the same file as one elsewhere (a hard link), which would change with it; "
                "nothing was changed. Copy the folder, and go on with the copy."
            )


def _check_header(path: Path) -> None:
    """Raise unless a file starts with the header of an SQLite database in WAL mode."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(MAGIC):
        why = "it is empty" if not header else "file is not a database"
        raise JournalError(
            f"{path} cannot be read as a journal ({why}); nothing was changed. Choose another output folder."
        )
    if header[MODE_AT] != WAL_MODE:
        raise JournalError(
            f"{path} is a database but not a journal; nothing was changed. Choose another output folder."
        )


def has_journal(folder: Path) -> bool:
    """Return whether a folder has a journal that SQLite may open; raise if another file is in its place."""
    check_own_files(folder)
    if not is_own_file(folder / FILE):
        return False
    _check_header(folder / FILE)
    return True


def create_database(path: Path, image: bytes) -> None:
    """Write a new database from its bytes, in WAL mode; a concurrent reader sees all of it or nothing."""
    header = bytearray(image)
    header[MODE_AT] = WAL_MODE
    with written(path) as file:
        file.write(header)


def open_for_writing(folder: Path) -> sqlite3.Connection:
    """Open a checked database for writing; this process is its only writer, others may read."""
    database = _connect(f"{(folder / FILE).absolute().as_uri()}?mode=rw")
    database.execute("PRAGMA synchronous = NORMAL")
    database.create_function("checksum_of", -1, checksum_of, deterministic=True)
    return database


def open_in_memory() -> sqlite3.Connection:
    """Open a new database in memory."""
    database = _connect("file::memory:")
    database.create_function("checksum_of", -1, checksum_of, deterministic=True)
    return database


@contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection to a folder's journal; another process may be writing it."""
    if not has_journal(folder):
        if is_being_written(folder):
            raise JournalError(f"{folder} is being started: its journal is not there yet. Try again in a moment.")
        raise JournalError(f"{folder} holds no {FILE}. Name the folder that turnout run wrote to.")
    with nobody_writing(folder) as nobody:
        database = open_unwritten(folder) if nobody else open_while_written(folder)
        try:
            check_version(database, str(folder / FILE))
            database.execute("PRAGMA query_only = ON")
            yield database
        finally:
            database.close()


def open_while_written(folder: Path) -> sqlite3.Connection:
    """Open a journal that another process is writing; the connection sees later commits."""
    has_journal(folder)
    return _connect(f"{(folder / FILE).absolute().as_uri()}?mode=ro")


def data_version(database: sqlite3.Connection) -> int:
    """Return SQLite's number that increases when another process commits to the database."""
    (version,) = database.execute("PRAGMA data_version").fetchone()
    return int(version)


def open_unwritten(folder: Path) -> sqlite3.Connection:
    """Open a journal for reading; no process may write it while the connection is open.

    SQLite cannot read a write-ahead log without writing an index of it, and removes both when it closes the database.
    If a killed process left a log, a copy is opened instead. The copy's files are deleted as soon as it is open.
    """
    if not is_own_file(folder / LOG) or not (folder / LOG).stat().st_size:
        return _connect(f"{(folder / FILE).absolute().as_uri()}?mode=ro&immutable=1")
    with TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as aside:
        for name in (FILE, LOG):
            shutil.copyfile(folder / name, Path(aside) / name, follow_symlinks=False)
        database = _connect(f"{(Path(aside) / FILE).as_uri()}?mode=rw")
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")  # the index of the log stays in memory
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens both files

        except BaseException:
            database.close()
            raise
    return database


def _connect(target: str) -> sqlite3.Connection:
    database = sqlite3.connect(target, isolation_level=None, check_same_thread=False, uri=True)
    try:
        database.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        database.execute("PRAGMA trusted_schema = OFF")  # tables of an untrusted file must not call functions

    except BaseException:
        database.close()
        raise
    return database
