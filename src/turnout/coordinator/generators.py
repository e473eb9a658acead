"""How a rule is met: it may be a plain function or a generator that asks first, and may or may not need rows."""

from collections.abc import Generator
from typing import Any, TypeGuard, TypeVar

from turnout.protocols import Aggregation, Rowwise
from turnout.requests import Request, Steps

T = TypeVar("T")


def settle(result: T | Generator[Request, Any, T]) -> Steps[T]:
    """Return a rule's result, passing on what it asks."""
    if isinstance(result, Generator):
        settled: T = yield from result
        return settled
    return result


def is_rowwise(rule: Aggregation) -> TypeGuard[Rowwise]:
    """Whether an aggregation needs the rows; a protocol's own isinstance is too slow for every round."""
    return hasattr(rule, "combine")
