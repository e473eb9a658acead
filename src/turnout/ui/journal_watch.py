"""One thread that sees every journal change, for all who look at a page.

SQLite keeps a number that goes up when another process commits (`PRAGMA data_version`). The thread asks for it on one
connection per study in progress, a few times a second and only while somebody looks; new folders, and writers that
died, are found by looking through the folders now and then.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from turnout.errors import JournalError
from turnout.journal.opening import open_while_written
from turnout.ui.study_cache import Kept, Shelf
from turnout.ui.summary import RUNNING

TICK_SECONDS = 0.2
SCAN_SECONDS = 2.0


@dataclass(slots=True)
class Held:
    """An open connection to a journal in progress."""

    database: sqlite3.Connection
    inode: int
    version: int = -1


class Watcher:
    """Wakes those who wait for a change of the shelf."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._changed = threading.Condition()
        self.viewers = 0
        self._stopped = False
        self.held: dict[str, Held] = {}
        self._thread = threading.Thread(target=self._watch, name="turnout-ui-watcher", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Let everyone who waits go, and end the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more will be seen."""
        return self._stopped

    @contextmanager
    def viewer(self) -> Iterator[None]:
        """Count somebody who looks; journals are watched only for them."""
        with self._changed:
            self.viewers += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.viewers -= 1

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until the shelf's count is no longer the one seen, for so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._shelf.count != seen, seconds)

    def _watch(self) -> None:
        scanned = -SCAN_SECONDS
        while True:
            with self._changed:
                if not self.viewers:
                    self._let_go(set())
                self._changed.wait_for(lambda: self._stopped or self.viewers > 0)
                if self._stopped:
                    self._let_go(set())
                    return
            has_changed = False
            if time.monotonic() - scanned >= SCAN_SECONDS:
                has_changed = self._shelf.refresh()
                scanned = time.monotonic()
            has_changed |= self._look()
            with self._changed:
                if has_changed:
                    self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopped, TICK_SECONDS)

    def _look(self) -> bool:
        """Ask each journal in progress for its number, read those in which it moved, and say whether a line did."""
        _, lines = self._shelf.lines()
        running = {name for name, line in lines.items() if line.state == RUNNING}
        self._let_go(running)
        moved = [name for name in running if self._has_moved(name)]
        changed = [self._shelf.renew(name, self.held[name].database) for name in moved]
        return any(changed)

    def _has_moved(self, name: str) -> bool:
        kept = self._shelf.get(name)
        if kept is None:
            return False
        try:
            held = self._holding(name, kept)
            (version,) = held.database.execute("PRAGMA data_version").fetchone()
        except (
            JournalError,
            OSError,
            sqlite3.Error,
        ):  # gone, or being replaced: the next scan tells
            return False
        before, held.version = held.version, int(version)
        return held.version != before

    def _holding(self, name: str, kept: Kept) -> Held:
        """Return the connection to a journal; a folder that was made anew gets a new one."""
        inode = kept.stamp.file[0]
        held = self.held.get(name)
        if held is None or held.inode != inode:
            self._let_go(set(self.held) - {name})
            held = Held(open_while_written(kept.folder), inode)
            self.held[name] = held
        return held

    def _let_go(self, but_for: set[str]) -> None:
        for name in set(self.held) - but_for:
            self.held.pop(name).database.close()
