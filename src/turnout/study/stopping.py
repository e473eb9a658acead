"""Ctrl-C: the first one lets the round end and saves, the second stops at once."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(KeyboardInterrupt):
    """A study that was asked to stop and has been saved."""


@contextmanager
def asked_to_stop(can_be_saved: bool = True) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C ask, where saving is possible; what is yielded says whether it has. Other handlers are left alone."""
    asked = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    in_front = threading.current_thread() is threading.main_thread()  # elsewhere Python allows no handler
    is_ours = can_be_saved and in_front and before is signal.default_int_handler

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)
        warnings.warn("the round is finished and saved first; Ctrl-C once more stops at once", stacklevel=2)

    if is_ours:
        signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, before)
