"""Server-sent events for open pages: changed rows of the list, and each round of a running study."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from turnout.errors import JournalError
from turnout.ui.journal_watch import Watcher
from turnout.ui.live_study import LiveStudy, live_study
from turnout.ui.pages import row
from turnout.ui.single_flight import Once
from turnout.ui.study_cache import StudyCache
from turnout.ui.study_summary import RUNNING, StudySummary

HEARTBEAT_SECONDS = 5.0  # writing to a closed connection is how it is noticed
PAUSE_SECONDS = 0.5  # between two reads of a whole study
STILL_HERE = b":\n\n"
REST = 2.0  # pause of this many times the last read, to leave the processor to the run


class Source:
    """Produces the events of all pages."""

    def __init__(self, cache: StudyCache, watcher: Watcher, token: str) -> None:
        self._cache, self._watcher, self._token = cache, watcher, token
        self._looks: Once[LiveStudy] = Once(8)

    def since(self, count: int) -> str:
        """Return a unique name for a state of the list; no other server uses the same."""
        return f"{self._token}-{count}"

    def live_study(self, line: StudySummary) -> LiveStudy:
        """Return a running study; requests at the same time share one read of its journal."""
        cached = self._cache.get(line.name)
        if cached is None:
            raise JournalError(f"{line.name} is no longer there. Go back to all runs.")
        return self._looks.get(line, lambda: live_study(cached.folder))

    def of_list(self, since: str) -> Iterator[bytes]:
        """Yield the changed rows of the list; all rows first if the page shows another state."""
        with self._watcher.viewer():
            count, lines = self._cache.lines()
            if self.since(count) != since:
                yield event("all", {"rows": list(map(row, lines.values()))})
            while not self._watcher.is_stopped:
                self._watcher.wait(count, HEARTBEAT_SECONDS)
                count, now = self._cache.lines()
                changed = [row(line) for name, line in now.items() if lines.get(name) != line]
                gone = [name for name in lines if name not in now]
                yield event("some", {"rows": changed, "gone": gone}) if changed or gone else STILL_HERE
                lines = now

    def of_study(self, name: str) -> Iterator[bytes]:
        """Yield the progress of a study and its current report; the last event says that the study ended."""
        sent: StudySummary | None = None
        shown: StudySummary | None = None
        due = 0.0
        with self._watcher.viewer():
            while not self._watcher.is_stopped:
                count, lines = self._cache.lines()
                line = lines.get(name)
                if line is None or line.state != RUNNING:
                    yield event("ended", {})
                    return
                if line != sent:
                    yield event("progress", row(line))
                    sent = line
                began = time.monotonic()
                if line != shown and began >= due:
                    try:
                        look = self.live_study(line)
                    except Exception:  # the page reloads and shows the error
                        yield event("ended", {})
                        return
                    yield event("look", _plain(look))
                    shown = line
                    due = time.monotonic() + max(PAUSE_SECONDS, REST * (time.monotonic() - began))
                self._watcher.wait(count, HEARTBEAT_SECONDS if line == shown else max(0.0, due - time.monotonic()))
                yield STILL_HERE


def event(name: str, value: Mapping[str, Any]) -> bytes:
    """Return one server-sent event."""
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()


def _plain(look: LiveStudy) -> dict[str, Any]:
    markup = [[section.anchor, section.markup] for section in look.sections]
    return {"shape": look.shape, "sections": markup, "data": look.data}
