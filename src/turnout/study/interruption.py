"""Ctrl-C and SIGTERM while a study runs.

After the first signal, a round that ends within a second is finished and saved. A longer round is abandoned between
two batches, and the study can resume from its last checkpoint. A second signal stops at once. A study that is kept in
memory has nothing to save and stops at once.
"""

import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

GRACE_SECONDS = 1.0  # a round may take to end after a signal


class Stopped(KeyboardInterrupt):
    """A signal stopped a study; its folder is complete, and the study can resume."""

    def __init__(self, number: int, saved: str) -> None:
        super().__init__(saved)
        self.exit_code = 128 + number  # what a shell reports: 130 after Ctrl-C, 143 after SIGTERM
        self.saved = saved  # which round of the running runs is saved


class StopRequest:
    """Whether and when a signal asked a study to stop."""

    def __init__(self, can_be_saved: bool) -> None:
        self.can_be_saved = can_be_saved
        self.is_between_rounds = False  # then nothing can be lost
        self._asked = threading.Event()
        self._asked_at = 0.0
        self._number = int(signal.SIGINT)

    def is_asked(self) -> bool:
        """Whether to stop after this round."""
        return self._asked.is_set()

    def is_overdue(self) -> bool:
        """Whether to abandon the round; called between batches, from several threads."""
        return self._asked.is_set() and time.monotonic() - self._asked_at >= GRACE_SECONDS

    def ask(self, number: int, frame: FrameType | None = None) -> None:
        """Handle a signal."""
        if self._asked.is_set():  # the second one
            raise KeyboardInterrupt
        self._number, self._asked_at = number, time.monotonic()
        self._asked.set()
        if not self.can_be_saved:
            raise KeyboardInterrupt
        if self.is_between_rounds:
            raise self._between_rounds()
        warnings.warn(
            f"stopping: a round that ends within {GRACE_SECONDS:g} s is saved, a longer one is abandoned; "
            "Ctrl-C once more stops at once",
            stacklevel=2,
        )

    def after_round(self, saved_round: int | None) -> Stopped:
        """Return the exception to raise after a round; None: it was round 0, which is not saved."""
        return Stopped(self._number, f"{'no round' if saved_round is None else f'round {saved_round}'} is saved")

    def within_round(self, saved_round: int | None) -> Stopped:
        """Return the exception to raise if a round was abandoned; None: no round is saved."""
        saved = "no round of these runs" if saved_round is None else f"round {saved_round}"
        return Stopped(self._number, f"the round in progress was abandoned; {saved} is saved")

    def _between_rounds(self) -> Stopped:
        return Stopped(self._number, "every round that was run is saved")

    @contextmanager
    def between_rounds(self) -> Iterator[None]:
        """Let a signal stop the block at once, such as the loading of data before a round."""
        if self.is_asked():
            raise self._between_rounds()
        self.is_between_rounds = True
        try:
            yield
        finally:
            self.is_between_rounds = False


@contextmanager
def handle_signals(can_be_saved: bool) -> Iterator[StopRequest]:
    """Handle Ctrl-C, and SIGTERM if results can be saved; the user's own handlers stay in place."""
    request = StopRequest(can_be_saved)
    usual = {signal.SIGINT: signal.default_int_handler}
    if can_be_saved:
        usual[signal.SIGTERM] = signal.SIG_DFL  # type: ignore[assignment]
    in_front = threading.current_thread() is threading.main_thread()  # other threads cannot set handlers
    ours = {number: before for number, before in usual.items() if in_front and signal.getsignal(number) is before}
    for number in ours:
        signal.signal(number, request.ask)
    try:
        yield request
    finally:
        for number, before in ours.items():
            signal.signal(number, before)
