"""Prepare a study's output folder: lock it, check what it holds, and create the journal if there is none."""

from contextlib import ExitStack, closing
from pathlib import Path

from turnout.errors import JournalError
from turnout.journal.changed_data import Data
from turnout.journal.locking import Lock
from turnout.journal.open_database import (
    check_own_files,
    check_single_names,
    create_database,
    has_journal,
    open_in_memory,
    open_unwritten,
)
from turnout.journal.schema import FILE
from turnout.journal.start_or_resume import EarlierFacts, StudyRow, check_can_resume, create_tables
from turnout.safe_files import ASIDE
from turnout.untrusted_input import as_written


def prepare_folder(folder: Path, study: StudyRow, data: Data, stack: ExitStack) -> tuple[Lock, EarlierFacts | None]:
    """Return the folder's lock and the facts in its journal; None instead of facts if the study is new.

    A folder that is damaged, or holds another study or other files, is refused before any byte of it changes.

    Args:
        folder: the study's output folder.
        study: the study as the journal stores it.
        data: digests of the data as it is now.
        stack: releases the lock when it is closed.
    """
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder)
    stack.callback(lock.release)
    if not has_journal(folder):
        with closing(open_in_memory()) as new:
            create_tables(new, study)
            create_database(folder / FILE, new.serialize())
        return lock, None
    check_single_names(folder)
    with closing(open_unwritten(folder)) as database, as_written(f"The journal in {folder}"):
        return lock, check_can_resume(database, folder, study, data)


def _check_folder(folder: Path) -> None:
    """Raise if the folder holds files that are not turnout's, or links that lead out of it."""
    if folder.exists() and not folder.is_dir():
        raise JournalError(f"{folder} is a file; nothing was changed. Choose an output folder.")
    check_own_files(folder)
    if not folder.is_dir() or (folder / FILE).exists():
        return
    ours = FILE + ASIDE  # left by a process that was killed before its journal was complete

    others = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(".") and entry.name != ours)
    if others:
        shown = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        raise JournalError(
            f"{folder} holds other files ({shown}) and no journal; nothing was changed. "
            "Choose an empty or new output folder."
        )
