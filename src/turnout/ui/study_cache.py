"""Every study below a folder, each read once and again only when its journal has changed."""

import sqlite3
import threading
from pathlib import Path
from typing import NamedTuple

from turnout.journal.locking import is_being_written
from turnout.ui.folders import Stamp, run_folders, stamp_of
from turnout.ui.summary import RUNNING, Summary, summary_of


class Kept(NamedTuple):
    """A study's line, and when it was true."""

    folder: Path
    stamp: Stamp
    summary: Summary


class Shelf:
    """The studies below one folder. Threads share it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0  # goes up whenever a line changes
        self._kept: dict[str, Kept] = {}
        self._lock = threading.RLock()  # held for moments: no journal is read under it
        self._refreshing = threading.Lock()

    def refresh(self) -> bool:
        """Look at every folder, read those that have changed, and say whether a line did."""
        with self._refreshing:
            found = [(name, folder, stamp_of(folder)) for name, folder in run_folders(self.root).items()]
            now = {name: self._fresh(name, folder, stamp) for name, folder, stamp in found if stamp is not None}
            with self._lock:
                before, self._kept = self._kept, now
                return self._counted(_lines(before) != _lines(now))

    def renew(self, name: str, database: sqlite3.Connection) -> bool:
        """Read one study again through an open connection, and say whether its line changed."""
        kept = self.get(name)
        if kept is None:  # it has gone meanwhile
            return False
        now = kept._replace(summary=summary_of(name, kept.folder, database))
        with self._lock:
            if name not in self._kept:
                return False
            self._kept[name] = now
            return self._counted(now.summary != kept.summary)

    def lines(self) -> tuple[int, dict[str, Summary]]:
        """Return the count, and every line that goes with it, the newest first."""
        with self._lock:
            ordered = sorted(self._kept.values(), key=lambda kept: kept.summary.name)
            ordered.sort(key=lambda kept: kept.summary.started, reverse=True)
            return self.count, {kept.summary.name: kept.summary for kept in ordered}

    def get(self, name: str) -> Kept | None:
        """Return one study; only what was found below the root has a name."""
        with self._lock:
            return self._kept.get(name)

    def _fresh(self, name: str, folder: Path, stamp: Stamp) -> Kept:
        kept = self.get(name)
        if kept is not None and kept.stamp == stamp and not _has_stopped(kept):
            return kept
        return Kept(folder, stamp, summary_of(name, folder))

    def _counted(self, has_changed: bool) -> bool:
        self.count += has_changed
        return has_changed


def _lines(kept: dict[str, Kept]) -> dict[str, Summary]:
    return {name: each.summary for name, each in kept.items()}


def _has_stopped(kept: Kept) -> bool:
    """Whether the process that wrote a study has gone without a word."""
    return kept.summary.state == RUNNING and not is_being_written(kept.folder)
