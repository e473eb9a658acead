"""How a world answers the round: requests that it knows it answers, the others it passes on to an engine."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from turnout.generators import relay
from turnout.requests import Steps

W = TypeVar("W")
T = TypeVar("T")

Answers = Mapping[type, Callable[[W, Any], Steps[Any]]]  # the world's method for each type of request


def serve(world: W, answers: Answers[W], steps: Steps[T]) -> Steps[T]:
    """Run a coordinator to its end: the world answers its requests; what it has no method for is yielded."""

    def reply(request: Any) -> Steps[Any]:
        answering = answers.get(type(request))
        return (yield request) if answering is None else (yield from answering(world, request))

    return (yield from relay(steps, reply))
