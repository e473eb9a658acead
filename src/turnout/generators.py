"""Rules and rounds are generators that yield requests and are sent answers. This passes their requests on."""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def relay(steps: Generator[Any, Any, T], reply: Callable[[Any], Generator[Any, Any, Any]]) -> Generator[Any, Any, T]:
    """Run a generator to its end and return its result; `reply` makes the answer to each of its requests.

    `reply` is a generator as well: it yields what has to be asked of others.
    """
    answer: Any = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        answer = yield from reply(request)
