"""How a journal's database is opened, in a folder that may come from a stranger.

A database of turnout's is in WAL mode from its first byte on, so SQLite never writes a rollback journal beside it. One
that is there anyway is refused before SQLite looks: it may name any file of the user's, and SQLite deletes that file.

Reading changes no byte of a folder. Where nobody writes, the database is read as it is, or, with a log that a killed
process has left, as a copy of both; else through SQLite's locks, which the writer has set up.
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
    """Raise if a name that turnout uses in a folder leads elsewhere, or would make SQLite follow a name in a file."""
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
    """Raise if a file that is written in place has a second name elsewhere: that one would change with it."""
    for name in (FILE, LOG, INDEX):
        if is_own_file(folder / name) and (folder / name).stat().st_nlink > 1:
            raise JournalError(
                f"{folder / name} is the same file as one elsewhere (a hard link), which would change with it; "
                "nothing was changed. Copy the folder, and go on with the copy."
            )


def _check_header(path: Path) -> None:
    """Raise unless a file begins as a database of turnout's does."""
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or not header.startswith(MAGIC):
        why = "it is empty" if not header else "file is not a database"
        raise JournalError(
            f"{path} cannot be read as a journal ({why}); nothing was changed. Choose another folder with --out."
        )
    if header[MODE_AT] != WAL_MODE:
        raise JournalError(
            f"{path} is a database but not a journal; nothing was changed. Choose another folder with --out."
        )


def is_there(folder: Path) -> bool:
    """Return whether a folder has a journal that SQLite may open; raise where it has something else in its place."""
    check_own_files(folder)
    if not is_own_file(folder / FILE):
        return False
    _check_header(folder / FILE)
    return True


def create_database(path: Path, image: bytes) -> None:
    """Write a new database from its bytes, in WAL mode: whoever reads meanwhile sees all of it or nothing."""
    header = bytearray(image)
    header[MODE_AT] = WAL_MODE
    with written(path) as file:
        file.write(header)


def open_for_writing(folder: Path) -> sqlite3.Connection:
    """Open a database that was checked, and that this process alone writes while others read."""
    database = _connect(f"{(folder / FILE).absolute().as_uri()}?mode=rw")
    database.execute("PRAGMA synchronous = NORMAL")
    database.create_function("checksum_of", -1, checksum_of, deterministic=True)
    return database


def open_in_memory() -> sqlite3.Connection:
    """Open a database that is kept in memory."""
    database = _connect("file::memory:")
    database.create_function("checksum_of", -1, checksum_of, deterministic=True)
    return database


@contextmanager
def reading(folder: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that changes nothing in a folder; another process may be writing it."""
    if not is_there(folder):
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
    """Open a journal that another process is writing: the connection sees what is written later."""
    is_there(folder)
    return _connect(f"{(folder / FILE).absolute().as_uri()}?mode=ro")


def open_unwritten(folder: Path) -> sqlite3.Connection:
    """Open a journal for reading that nobody writes as long as it is open.

    SQLite cannot read a log without writing an index of it, and removes both when it closes the database: where a
    killed process has left one, it gets a copy. The copy has no name any more once it is open.
    """
    if not is_own_file(folder / LOG) or not (folder / LOG).stat().st_size:
        return _connect(f"{(folder / FILE).absolute().as_uri()}?mode=ro&immutable=1")
    with TemporaryDirectory(prefix="turnout-", ignore_cleanup_errors=True) as aside:
        for name in (FILE, LOG):
            shutil.copyfile(folder / name, Path(aside) / name, follow_symlinks=False)
        database = _connect(f"{(Path(aside) / FILE).as_uri()}?mode=rw")
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")  # no index beside it, either
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()  # both files are open from now on
        except BaseException:
            database.close()
            raise
    return database


def _connect(target: str) -> sqlite3.Connection:
    database = sqlite3.connect(target, isolation_level=None, check_same_thread=False, uri=True)
    try:
        database.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        database.execute("PRAGMA trusted_schema = OFF")  # a stranger's tables call no functions
    except BaseException:
        database.close()
        raise
    return database
