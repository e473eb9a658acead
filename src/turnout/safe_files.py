"""Writing below a folder that may come from a stranger: no link is followed, and a file is whole or not there.

A file is written under another name, which must be new, synced, renamed, and its folder is synced. A link in the
place of a file or of a folder between would lead the write elsewhere: it is refused before anything is written.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from turnout.errors import JournalError

ASIDE = ".part"  # how the name of a file ends while it is written
ROLLBACK_END = bytes.fromhex("d9d505f920a163d7")  # of a rollback journal of SQLite that names another file
KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link"}


def is_own_file(path: Path) -> bool:
    """Return whether there is a file; raise where a link, a folder or a device has its name."""
    return _is_own(path, stat.S_IFREG)


def is_own_folder(path: Path) -> bool:
    """Return whether there is a folder; raise where a link, a file or a device has its name."""
    return _is_own(path, stat.S_IFDIR)


def _is_own(path: Path, wanted: int) -> bool:
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if kind != wanted:
        raise JournalError(
            f"{path} must be {KINDS[wanted]}; it is {KINDS.get(kind, 'a device or a pipe')}. turnout follows no link "
            "out of a study's folder; nothing was changed. Remove it, or bring back a good copy of the folder."
        )
    return True


def check_database(path: Path) -> None:
    """Raise if opening a database of another tool's would lead SQLite to a file elsewhere.

    A rollback journal beside it that ends in this way names a file, which SQLite deletes. A second name of the
    database, elsewhere, would change with it.
    """
    if is_own_file(path) and path.stat().st_nlink > 1:
        raise JournalError(
            f"{path} is the same file as one elsewhere (a hard link), which would change with it; nothing was changed. "
            "Copy the folder, and go on with the copy."
        )
    for beside in (path.with_name(f"{path.name}-{kind}") for kind in ("wal", "shm", "journal")):
        if is_own_file(beside) and _last_bytes(beside, len(ROLLBACK_END)) == ROLLBACK_END:
            raise JournalError(
                f"{beside} names a file elsewhere, which SQLite would delete; nothing was changed. "
                "Remove it, or bring back a good copy of the folder."
            )


def _last_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - count))
        return file.read()


def make_inner_folder(folder: Path) -> None:
    """Make a folder within a study's own, unless it is there."""
    if not is_own_folder(folder):
        folder.mkdir()
        sync_folder(folder.parent)


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of `path`, and is on the disk, when the block ends without an error."""
    aside = path.with_name(path.name + ASIDE)
    try:
        if os.path.lexists(aside):  # a killed process left it, or a stranger did: a link goes, not what it points to
            aside.unlink()
        with open(aside, "xb") as file:  # a new file, or an error: it follows no link
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            if os.path.lexists(aside):
                aside.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system lets a folder be synced."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
