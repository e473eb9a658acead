"""Cache of the summaries of all studies below a folder; a journal is read again only if it has changed."""

import sqlite3
import threading
from pathlib import Path
from typing import NamedTuple

from turnout.journal.locking import is_being_written
from turnout.ui.find_journals import Stamp, run_folders, stamp_of
from turnout.ui.study_summary import RUNNING, StudySummary, summary_of


class CachedStudy(NamedTuple):
    """A study's summary, and the stamp of the journal that it was read from."""

    folder: Path
    stamp: Stamp
    summary: StudySummary


class StudyCache:
    """The studies below one folder; safe to use from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.count = 0  # increases whenever a summary changes
        self._kept: dict[str, CachedStudy] = {}
        self._lock = threading.RLock()  # held for moments: no journal is read under it
        self._refreshing = threading.Lock()

    def refresh(self) -> bool:
        """Scan the folder, read changed journals, and return whether a summary changed."""
        with self._refreshing:
            found = [(name, folder, stamp_of(folder)) for name, folder in run_folders(self.root).items()]
            now = {name: self._fresh(name, folder, stamp) for name, folder, stamp in found if stamp is not None}
            with self._lock:
                before, self._kept = self._kept, now
                return self._counted(_lines(before) != _lines(now))

    def renew(self, name: str, database: sqlite3.Connection) -> bool:
        """Read one study again through an open connection; return whether its summary changed."""
        kept = self.get(name)
        if kept is None:  # it has gone meanwhile
            return False
        now = kept._replace(summary=summary_of(name, kept.folder, database))
        with self._lock:
            if name not in self._kept:
                return False
            self._kept[name] = now
            return self._counted(now.summary != kept.summary)

    def lines(self) -> tuple[int, dict[str, StudySummary]]:
        """Return the count, and all summaries at that count, newest first."""
        with self._lock:
            ordered = sorted(self._kept.values(), key=lambda kept: kept.summary.name)
            ordered.sort(key=lambda kept: kept.summary.started, reverse=True)
            return self.count, {kept.summary.name: kept.summary for kept in ordered}

    def get(self, name: str) -> CachedStudy | None:
        """Return one study by name; None unless it was found below the root."""
        with self._lock:
            return self._kept.get(name)

    def _fresh(self, name: str, folder: Path, stamp: Stamp) -> CachedStudy:
        kept = self.get(name)
        if kept is not None and kept.stamp == stamp and not _has_stopped(kept):
            return kept
        return CachedStudy(folder, stamp, summary_of(name, folder))

    def _counted(self, has_changed: bool) -> bool:
        self.count += has_changed
        return has_changed


def _lines(kept: dict[str, CachedStudy]) -> dict[str, StudySummary]:
    return {name: each.summary for name, each in kept.items()}


def _has_stopped(kept: CachedStudy) -> bool:
    """Return whether the process that wrote a running study has died."""
    return kept.summary.state == RUNNING and not is_being_written(kept.folder)
