"""Compute an expensive value once, and share it among threads that ask for it at the same time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Once(Generic[Made]):
    """A cache of the last few values; a thread waits only for the value that it asked for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Future[Made]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the value of a key, computed if it is not cached; all waiting threads get an error."""
        with self._lock:
            known = self._kept.get(key)
            own: Future[Made] = Future() if known is None else known
            self._kept[key] = own
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        if known is None:
            self._make(key, own, make)
        return own.result()

    def _make(self, key: Hashable, own: "Future[Made]", make: Callable[[], Made]) -> None:
        try:
            own.set_result(make())
        except BaseException as error:
            with self._lock:
                if self._kept.get(key) is own:  # it is tried again when it is next asked for
                    del self._kept[key]
            own.set_exception(error)
