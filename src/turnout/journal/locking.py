"""Allow one writer per folder, by the operating system's lock on a plain file, `.lock`.

The operating system releases the lock when the process ends, however it ends. The file stays, because readers lock it
too: while a reader holds the lock for reading, no writer starts.
"""

import os
import stat
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnout.errors import JournalError

LOCK = ".lock"
PATIENCE_SECONDS = 10.0  # that a writer waits for readers, which hold the lock while they read
PAUSE_SECONDS = 0.02

if sys.platform == "win32":
    import msvcrt

    NO_LINK = 0

    def _try(handle: int, *, shared: bool) -> bool:
        os.lseek(handle, 1 << 30, os.SEEK_SET)  # a byte behind the text, which other processes read
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK  # the second: do not wait if it is a named pipe

    def _try(handle: int, *, shared: bool) -> bool:
        try:
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Lock:
    """The exclusive right to write a folder. Call `sign` once the folder is checked; before, no byte of it changes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._is_new, self._is_signed = not os.path.lexists(self._path), False
        self._handle: int | None = None
        give_up = time.monotonic() + PATIENCE_SECONDS
        while (handle := _taken(self._path)) is None:
            if is_being_written(folder) or time.monotonic() > give_up:
                raise JournalError(
                    f"{folder} is being written by another run{_process(self._path)}; nothing was changed. "
                    "Wait until it ends, or choose another output folder."
                )
            time.sleep(PAUSE_SECONDS)  # only readers hold it
        self._handle = handle
        _OPEN_LOCKS.add(self)

    def sign(self) -> None:
        """Write this process's number into the lock file."""
        assert self._handle is not None
        self._is_signed = True
        self._write(b"%d\n" % os.getpid())

    def release(self) -> None:
        """Let others write. A lock file that was created but never signed is removed."""
        if self._handle is None:
            return
        if self._is_signed:
            self._write(b"")
        elif self._is_new:
            self._path.unlink(missing_ok=True)
        self.let_go()

    def let_go(self) -> None:
        """Close the file as it is. A forked process does so at once, so that only its parent holds the lock."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self, text: bytes) -> None:
        assert self._handle is not None
        os.ftruncate(self._handle, 0)
        os.lseek(self._handle, 0, os.SEEK_SET)
        os.write(self._handle, text)


_OPEN_LOCKS: "weakref.WeakSet[Lock]" = weakref.WeakSet()  # that a forked process has to close


def _let_go_of_all() -> None:
    for lock in list(_OPEN_LOCKS):
        lock.let_go()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go_of_all)


def is_being_written(folder: Path) -> bool:
    """Return whether a process holds a folder's lock for writing; the check changes nothing."""
    with nobody_writing(folder) as nobody:
        return not nobody


@contextmanager
def nobody_writing(folder: Path) -> Iterator[bool]:
    """Yield whether no process writes a folder; if none does, none can start before the block ends."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | NO_LINK)
    except OSError:  # there is no lock file, or it is not a file: no process can hold it
        yield True
        return
    try:
        yield not stat.S_ISREG(os.fstat(handle).st_mode) or _try(handle, shared=True)
    finally:
        os.close(handle)


def _taken(path: Path) -> int | None:
    """Return an open handle that holds the lock; None if another process or thread holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666)
    try:
        own = os.fstat(handle)
        if not stat.S_ISREG(own.st_mode) or own.st_nlink > 1:
            raise JournalError(
                f"{path} must be a plain file with one name; it is something else; nothing was changed. Remove it."
            )
        if _try(handle, shared=False) and os.path.lexists(path) and os.path.samestat(own, path.lstat()):
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)  # another process holds it, or has just removed the file that it had created
    return None


def _process(path: Path) -> str:
    """Return the number of the process that signed the lock, for a message; empty if it no longer runs."""
    try:
        number = int(path.read_text())
        if sys.platform != "win32":
            os.kill(number, 0)  # signals nothing: raises if there is no such process
        return f", process {number}"
    except (OSError, ValueError, OverflowError):
        return ""
