"""Find the folders with a journal below one folder. Links are not followed, so nothing outside it is found."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from turnout.journal.open_database import LOG
from turnout.journal.schema import FILE

DEEPEST = 5  # folders below folders; a run's own folder is not looked into


class Stamp(NamedTuple):
    """Values that change when a journal is written: of its file, and of SQLite's write-ahead log."""

    file: tuple[int, int, int]  # inode, nanoseconds, bytes
    log: tuple[int, int]


def stamp_of(folder: Path) -> Stamp | None:
    """Return a folder's stamp; None if the journal is gone."""
    journal = folder / FILE
    try:
        file = journal.lstat()
    except OSError:
        return None
    try:
        log = (folder / LOG).lstat()
        return Stamp((file.st_ino, file.st_mtime_ns, file.st_size), (log.st_mtime_ns, log.st_size))
    except OSError:
        return Stamp((file.st_ino, file.st_mtime_ns, file.st_size), (0, 0))


def run_folders(root: Path) -> dict[str, Path]:
    """Return the folders with a journal, by their path below the root; the root itself is "."."""
    return {folder.relative_to(root).as_posix(): folder for folder in _with_journal(root, 0)}


def _with_journal(folder: Path, depth: int) -> Iterator[Path]:
    try:
        with os.scandir(folder) as iterator:
            entries = list(iterator)
    except OSError:  # gone meanwhile, or not ours to read
        return
    if any(entry.name == FILE and entry.is_file(follow_symlinks=False) for entry in entries):
        yield folder
    elif depth < DEEPEST:
        for entry in entries:
            if _can_be_named(entry.name) and entry.is_dir(follow_symlinks=False):
                yield from _with_journal(folder / entry.name, depth + 1)


def _can_be_named(name: str) -> bool:
    """Return whether a folder is not hidden and its name is printable, so that a page can link to it."""
    return not name.startswith(".") and name.isprintable()
