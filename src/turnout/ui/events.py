"""What pages that listen are told: the list's changed lines, and each round of a study in progress."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from turnout.errors import JournalError
from turnout.ui.journal_watch import Watcher
from turnout.ui.live import SoFar, so_far
from turnout.ui.pages import row
from turnout.ui.single_flight import Once
from turnout.ui.study_cache import Shelf
from turnout.ui.summary import RUNNING, Summary

HEARTBEAT_SECONDS = 5.0  # a browser that has gone is noticed when it is written to
PAUSE_SECONDS = 0.5  # between two looks at a whole study
STILL_HERE = b":\n\n"
REST = 2.0  # times as long as a look took: the run beside it needs the processor more


class Source:
    """Everything that pages are told."""

    def __init__(self, shelf: Shelf, watcher: Watcher, token: str) -> None:
        self._shelf, self._watcher, self._token = shelf, watcher, token
        self._looks: Once[SoFar] = Once(8)

    def since(self, count: int) -> str:
        """Return the name of a state of the list, which no other server gives."""
        return f"{self._token}-{count}"

    def so_far(self, line: Summary) -> SoFar:
        """Return a study in progress; several who ask at once share one look at it."""
        kept = self._shelf.get(line.name)
        if kept is None:
            raise JournalError(f"{line.name} is no longer there. Go back to all runs.")
        return self._looks.get(line, lambda: so_far(kept.folder))

    def of_list(self, since: str) -> Iterator[bytes]:
        """Tell a list what has changed; one that shows another state than this one is told everything."""
        with self._watcher.viewer():
            count, lines = self._shelf.lines()
            if self.since(count) != since:
                yield event("all", {"rows": list(map(row, lines.values()))})
            while not self._watcher.is_stopped:
                self._watcher.wait(count, HEARTBEAT_SECONDS)
                count, now = self._shelf.lines()
                changed = [row(line) for name, line in now.items() if lines.get(name) != line]
                gone = [name for name in lines if name not in now]
                yield event("some", {"rows": changed, "gone": gone}) if changed or gone else STILL_HERE
                lines = now

    def of_study(self, name: str) -> Iterator[bytes]:
        """Tell a page how far a study is, and what it looks like now; the last it hears is that the study ended."""
        told: Summary | None = None
        shown: Summary | None = None
        due = 0.0
        with self._watcher.viewer():
            while not self._watcher.is_stopped:
                count, lines = self._shelf.lines()
                line = lines.get(name)
                if line is None or line.state != RUNNING:
                    yield event("ended", {})
                    return
                if line != told:
                    yield event("progress", row(line))
                    told = line
                began = time.monotonic()
                if line != shown and began >= due:
                    try:
                        look = self.so_far(line)
                    except Exception:  # a reload says what is wrong
                        yield event("ended", {})
                        return
                    yield event("look", _plain(look))
                    shown = line
                    due = time.monotonic() + max(PAUSE_SECONDS, REST * (time.monotonic() - began))
                self._watcher.wait(count, HEARTBEAT_SECONDS if line == shown else max(0.0, due - time.monotonic()))
                yield STILL_HERE


def event(name: str, value: Mapping[str, Any]) -> bytes:
    """Return a message to a page that listens."""
    return f"event: {name}\ndata: {json.dumps(value, allow_nan=False)}\n\n".encode()


def _plain(look: SoFar) -> dict[str, Any]:
    markup = [[anchor, markup] for anchor, _, markup in look.sections]
    return {"shape": look.shape, "sections": markup, "data": look.data}
