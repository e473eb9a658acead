"""A cache of the samples that were read last: runs that differ only in the partition share one store in memory."""

import os
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

T = TypeVar("T")


def cache_last(read: Callable[..., T]) -> Callable[..., T]:
    """Cache the last result of a function of hashable arguments until the data folders change."""

    @lru_cache(maxsize=1)
    def cached(folders: tuple[str | None, ...], *args: object) -> T:
        return read(*args)

    @wraps(read)
    def wrapped(*args: object) -> T:
        return cached((os.environ.get("TURNOUT_DATA"), os.environ.get("TURNOUT_CACHE")), *args)

    return wrapped
