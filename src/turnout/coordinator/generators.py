"""How a rule is called: its method may be a plain function, or a generator that asks first."""

from collections.abc import Generator
from typing import Any, TypeVar

from turnout.requests import Request, Steps

T = TypeVar("T")


def settle(result: T | Generator[Request, Any, T]) -> Steps[T]:
    """Return a rule's result, passing on what it asks."""
    if isinstance(result, Generator):
        settled: T = yield from result
        return settled
    return result
