"""Claiming a folder for a study: its lock is taken, and what it holds is checked before a byte of it changes."""

from contextlib import ExitStack, closing
from pathlib import Path

from turnout.errors import JournalError
from turnout.journal.changed_data import Data
from turnout.journal.locking import Lock
from turnout.journal.opening import (
    check_own_files,
    check_single_names,
    create_database,
    is_there,
    open_in_memory,
    open_unwritten,
)
from turnout.journal.schema import FILE
from turnout.journal.start_or_resume import Earlier, Told, check_can_go_on, fill
from turnout.safe_files import ASIDE
from turnout.untrusted_input import as_written


def claim(folder: Path, study: Told, data: Data, held: ExitStack) -> tuple[Lock, Earlier | None]:
    """Return a folder's lock, and the facts that are in its journal; None where the study begins.

    A folder that is damaged, or holds another study or other files, is refused and no byte of it has changed.
    """
    _check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder)
    held.callback(lock.release)
    if not is_there(folder):
        with closing(open_in_memory()) as new:
            fill(new, study)
            create_database(folder / FILE, new.serialize())
        return lock, None
    check_single_names(folder)
    with closing(open_unwritten(folder)) as database, as_written(f"The journal in {folder}"):
        return lock, check_can_go_on(database, folder, study, data)


def _check_folder(folder: Path) -> None:
    """Raise if the folder holds things that are not turnout's, or that lead out of it."""
    if folder.exists() and not folder.is_dir():
        raise JournalError(f"{folder} is a file; nothing was changed. Choose a folder with --out.")
    check_own_files(folder)
    if not folder.is_dir() or (folder / FILE).exists():
        return
    ours = FILE + ASIDE  # of a process that was killed before it had a journal
    others = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(".") and entry.name != ours)
    if others:
        shown = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        raise JournalError(
            f"{folder} holds other files ({shown}) and no journal; nothing was changed. "
            "Choose an empty or new folder with --out."
        )
