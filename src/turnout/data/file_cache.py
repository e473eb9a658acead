"""Files are read once: runs that differ only in who holds what share one store of samples."""

import os
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")


def once(read: Callable[..., T]) -> Callable[..., T]:
    """Keep the last result of a function of plain arguments, as long as the data folders stay the same."""

    @lru_cache(maxsize=1)
    def kept(folders: tuple[str | None, ...], *args: object) -> T:
        return read(*args)

    @wraps(read)
    def wrapped(*args: object) -> T:
        return kept((os.environ.get("TURNOUT_DATA"), os.environ.get("TURNOUT_CACHE")), *args)

    return wrapped
