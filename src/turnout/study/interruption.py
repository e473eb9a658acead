"""Ctrl-C and SIGTERM while a study runs.

The first one asks: a round that ends within a second is finished and saved. A longer one is given up between two
batches, and the study goes on later from its last checkpoint. A second signal stops at once. A study that is kept in
memory has nothing to save and stops at once.
"""

import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 1.0  # that a round may take to end


class Stopped(KeyboardInterrupt):
    """A study was asked to stop; its folder is whole, and it goes on from there."""

    def __init__(self, number: int, saved: str) -> None:
        super().__init__(saved)
        self.exit_code = 128 + number  # what a shell reports: 130 after Ctrl-C, 143 after SIGTERM
        self.saved = saved  # what the folder holds of the runs that were going on


class StopRequest:
    """Whether a study was asked to stop, and how long ago."""

    def __init__(self, can_be_saved: bool) -> None:
        self.can_be_saved = can_be_saved
        self.is_between_rounds = False  # nothing is in progress that could be lost
        self._asked = threading.Event()
        self._asked_at = 0.0
        self._number = int(signal.SIGINT)

    def is_asked(self) -> bool:
        """Whether to stop after this round."""
        return self._asked.is_set()

    def is_overdue(self) -> bool:
        """Whether to give the round up: read between batches, from several threads."""
        return self._asked.is_set() and time.monotonic() - self._asked_at >= GRACE_SECONDS

    def ask(self, number: int, frame: FrameType | None = None) -> None:
        """Take a signal."""
        if self._asked.is_set():  # the second one
            raise KeyboardInterrupt
        self._number, self._asked_at = number, time.monotonic()
        self._asked.set()
        if not self.can_be_saved:
            raise KeyboardInterrupt
        if self.is_between_rounds:
            raise self._between_rounds()
        warnings.warn(
            f"stopping: a round that ends within {GRACE_SECONDS:g} s is saved, a longer one is given up; "
            "Ctrl-C once more stops at once",
            stacklevel=2,
        )

    def after_round(self, saved_round: int | None) -> Stopped:
        """Return what to raise where a round has ended; None: it was round 0, which is simply run again."""
        return Stopped(self._number, f"{'no round' if saved_round is None else f'round {saved_round}'} is saved")

    def within_round(self, saved_round: int | None) -> Stopped:
        """Return what to raise where a round was given up; None: no round is saved."""
        saved = "no round of these runs" if saved_round is None else f"round {saved_round}"
        return Stopped(self._number, f"the round in progress was given up; {saved} is saved")

    def _between_rounds(self) -> Stopped:
        return Stopped(self._number, "every round that was run is saved")

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Let a signal stop at once what comes before a round, such as reading data."""
        if self.is_asked():
            raise self._between_rounds()
        self.is_between_rounds = True
        try:
            yield
        finally:
            self.is_between_rounds = False


@contextmanager
def listening(can_be_saved: bool) -> Iterator[StopRequest]:
    """Take Ctrl-C, and SIGTERM where there is something to save; handlers of the user's own are left alone."""
    request = StopRequest(can_be_saved)
    usual = {signal.SIGINT: signal.default_int_handler}
    if can_be_saved:
        usual[signal.SIGTERM] = signal.SIG_DFL  # type: ignore[assignment]
    in_front = threading.current_thread() is threading.main_thread()  # elsewhere Python allows no handler
    ours = {number: before for number, before in usual.items() if in_front and signal.getsignal(number) is before}
    for number in ours:
        signal.signal(number, request.ask)
    try:
        yield request
    finally:
        for number, before in ours.items():
            signal.signal(number, before)
