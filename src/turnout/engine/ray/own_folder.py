"""The temporary folder of a cluster on this machine.

A lock on a file in it says that its process lives: the operating system releases the lock however the process ends. So
what a killed process left is removed when the next cluster starts.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHORT = "/tmp" if os.path.isdir("/tmp") else None  # sockets lie in it, and the path of a socket is short
PREFIX = "turnout-ray-"
LOCK = "process.lock"

if sys.platform == "win32":  # nothing is locked, and nothing that was left is removed

    def _is_locked(handle: int) -> bool:
        return False

    def _abandoned() -> Iterator[Path]:
        yield from ()

else:
    import fcntl

    def _is_locked(handle: int) -> bool:
        """Lock a file; return whether another process has locked it."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def _abandoned() -> Iterator[Path]:
        """Yield the folders of this user whose process has ended."""
        for folder in Path(SHORT or tempfile.gettempdir()).glob(f"{PREFIX}*"):
            try:
                found = folder.lstat()
                if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                    continue
                handle = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            except OSError:  # it has no lock: it is being made, or something else
                continue
            try:
                if not _is_locked(handle):
                    yield folder
            finally:
                os.close(handle)


class OwnFolder:
    """A new folder, which is removed at the end; those that killed processes of this user left are removed first."""

    def __init__(self) -> None:
        for left in _abandoned():
            shutil.rmtree(left, ignore_errors=True)
        self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=SHORT, ignore_cleanup_errors=True)
        self.name = self._folder.name
        new = Path(self.name, f"{LOCK}.new")
        self._lock = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        _is_locked(self._lock)
        new.rename(Path(self.name, LOCK))  # nobody sees the file before it is locked

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        self._folder.cleanup()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
