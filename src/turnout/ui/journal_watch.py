"""Watch the journals of running studies for changes, with one thread for all open pages.

SQLite keeps a number that increases when another process commits (`PRAGMA data_version`). The thread reads it a few
times a second, on one connection per running study, and only while a page is open. Every few seconds it scans the
folders for new studies and for studies whose process has died.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from turnout.errors import JournalError
from turnout.journal.open_database import data_version, open_while_written
from turnout.ui.study_cache import CachedStudy, StudyCache
from turnout.ui.study_summary import RUNNING

TICK_SECONDS = 0.2
SCAN_SECONDS = 2.0


@dataclass(slots=True)
class WatchedJournal:
    """An open connection to the journal of a running study."""

    database: sqlite3.Connection
    inode: int
    version: int = -1


class Watcher:
    """Wakes the pages that wait for a change of the cache."""

    def __init__(self, cache: StudyCache) -> None:
        self._cache = cache
        self._changed = threading.Condition()
        self.viewers = 0
        self._stopped = False
        self.connections: dict[str, WatchedJournal] = {}
        self._thread = threading.Thread(target=self._watch, name="turnout-ui-watcher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Wake all waiting pages, and end the thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_stopped(self) -> bool:
        """Whether the thread has been told to end."""
        return self._stopped

    @contextmanager
    def viewer(self) -> Iterator[None]:
        """Count an open page while the block runs; journals are watched only while there is one."""
        with self._changed:
            self.viewers += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self.viewers -= 1

    def wait(self, seen: int, seconds: float) -> None:
        """Wait until the cache's count differs from `seen`, or until the seconds have passed."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._cache.count != seen, seconds)

    def _watch(self) -> None:
        scanned = -SCAN_SECONDS
        while True:
            with self._changed:
                if not self.viewers:
                    self._close_all_but(set())
                self._changed.wait_for(lambda: self._stopped or self.viewers > 0)
                if self._stopped:
                    self._close_all_but(set())
                    return
            has_changed = False
            if time.monotonic() - scanned >= SCAN_SECONDS:
                has_changed = self._cache.refresh()
                scanned = time.monotonic()
            has_changed |= self._look()
            with self._changed:
                if has_changed:
                    self._changed.notify_all()
                self._changed.wait_for(lambda: self._stopped, TICK_SECONDS)

    def _look(self) -> bool:
        """Read the summaries of running studies whose journal changed; return whether one of them differs."""
        _, lines = self._cache.lines()
        running = {name for name, line in lines.items() if line.state == RUNNING}
        self._close_all_but(running)
        moved = [name for name in running if self._has_moved(name)]
        changed = [self._cache.renew(name, self.connections[name].database) for name in moved]
        return any(changed)

    def _has_moved(self, name: str) -> bool:
        cached = self._cache.get(name)
        if cached is None:
            return False
        try:
            journal = self._connection(name, cached)
            version = data_version(journal.database)
        except (
            JournalError,
            OSError,
            sqlite3.Error,
        ):  # gone, or being replaced: the next scan finds out
            return False
        before, journal.version = journal.version, version
        return version != before

    def _connection(self, name: str, cached: CachedStudy) -> WatchedJournal:
        """Return the connection to a journal; a folder that was created again gets a new connection."""
        inode = cached.stamp.file[0]
        journal = self.connections.get(name)
        if journal is None or journal.inode != inode:
            self._close_all_but(set(self.connections) - {name})
            journal = WatchedJournal(open_while_written(cached.folder), inode)
            self.connections[name] = journal
        return journal

    def _close_all_but(self, needed: set[str]) -> None:
        for name in set(self.connections) - needed:
            self.connections.pop(name).database.close()
