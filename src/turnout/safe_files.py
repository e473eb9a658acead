"""Atomic writes to a folder that may come from an untrusted source, without following links.

A file is created under a new temporary name, synced and renamed, and its folder is synced. If a link stands in place of
a file or a folder, it would lead the write elsewhere: the write is refused before anything changes.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from turnout.errors import JournalError

ASIDE = ".part"  # suffix of the temporary name of a file that is being written
ROLLBACK_END = bytes.fromhex("d9d505f920a163d7")  # last bytes of an SQLite rollback journal that names another file
KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link"}


def is_own_file(path: Path) -> bool:
    """Return whether this is a regular file; raise JournalError if a link, a folder or a device has the name."""
    return _is_own(path, stat.S_IFREG)


def is_own_folder(path: Path) -> bool:
    """Return whether this is a folder; raise JournalError if a link, a file or a device has the name."""
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
    """Raise JournalError if opening another tool's database could change a file outside its folder.

    A rollback journal with this ending names another file, which SQLite would delete. A hard link is a second name of
    the database elsewhere, which would change with it.
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
    """Create a folder inside a study's folder if it does not exist."""
    if not is_own_folder(folder):
        folder.mkdir()
        sync_folder(folder.parent)


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file; when the block ends without an error, sync it and rename it to `path`."""
    aside = path.with_name(path.name + ASIDE)
    try:
        if os.path.lexists(aside):  # left by a killed process or an attacker; unlink removes a link, not its target
            aside.unlink()
        with open(aside, "xb") as file:  # "x" fails if the name exists, so it follows no link
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
    """Sync the directory entries of a folder to the disk, on systems that support it."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
