"""Whoever waits for an engine: it is told what the engine is doing, and may ask it to stop between two batches."""

from collections.abc import Callable
from dataclasses import dataclass

from turnout.requests import Evaluate, Fit, Probe, Score

CHOOSING = "choosing how to run"
DOING: dict[type, str] = {Fit: "training", Probe: "asking clients", Score: "scoring models", Evaluate: "evaluating"}


class Interrupted(KeyboardInterrupt):
    """An engine was asked to stop and gave up what it was doing; none of it counts."""


def _never() -> bool:
    return False


def _say_nothing(what: str) -> None:
    pass


@dataclass(slots=True)
class Watch:
    """An engine has one from its beginning; whoever runs a study sets it, and clears it afterwards."""

    is_asked: Callable[[], bool] = _never  # whether to stop; called from several threads
    tell: Callable[[str], None] = _say_nothing  # what is being done; called from the thread that called `answer`

    def check(self) -> None:
        """Raise Interrupted if the engine is to stop: called between batches."""
        if self.is_asked():
            raise Interrupted

    def begin(self, request: Fit | Probe | Score | Evaluate) -> None:
        """Tell what a request sets going."""
        self.tell(f"round {request.round}: {DOING[type(request)]}")

    def clear(self) -> None:
        """Let nobody watch."""
        self.is_asked, self.tell = _never, _say_nothing
