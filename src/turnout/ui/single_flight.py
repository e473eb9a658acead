"""What takes long to make is made once and shared by all who ask for it."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Once(Generic[Made]):
    """Keeps the last few things that were made. Who asks for one waits for that one alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Future[Made]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what the key stands for, made now if it is not at hand; an error is told to all who wait for it."""
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
