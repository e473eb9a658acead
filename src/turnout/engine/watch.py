"""Whoever waits for an engine: it is told what the engine is doing, and may ask it to stop between two batches."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from turnout.distillation import Distil, Predict
from turnout.requests import EngineRequest, Evaluate, EvaluateEach, Fit, Probe, Score

DOING: dict[type, str] = {
    Fit: "training",
    Probe: "asking clients",
    Score: "scoring models",
    Evaluate: "evaluating",
    EvaluateEach: "evaluating clients' own models",
    Predict: "predicting on the public set",
    Distil: "distilling",
}


class Interrupted(KeyboardInterrupt):
    """An engine was asked to stop and gave up what it was doing; none of it counts."""


class TooSlowError(Exception):
    """A round of a search took longer than it may; it is run another way."""


def _never() -> bool:
    return False


def _say_nothing(what: str) -> None:
    pass


def _show_nothing(share: float) -> None:
    pass


@dataclass(slots=True)
class Watch:
    """An engine has one from its beginning; whoever runs a study sets it, and clears it afterwards."""

    is_asked: Callable[[], bool] = _never  # whether to stop; called from several threads
    tell: Callable[[str], None] = _say_nothing  # what is being done; called from the thread that called `answer`
    advance: Callable[[float], None] = _show_nothing  # the share of it that is done; called from several threads
    expected: int = 0  # batches of what is being done; 0: not known
    done: int = 0
    group: int = 0  # number of the runs that advance together: with a request's round, it names a round of the study
    deadline: float = math.inf  # on the clock of time.perf_counter; afterwards a check raises TooSlowError
    rounds_ahead: float = 0.0  # rounds like the next one that the study still has, over all its runs; 0: not known

    def expect(self, batches: int) -> None:
        """Note how many batches come next, so that a share of them can be shown."""
        self.expected, self.done = batches, 0

    def check(self) -> None:
        """Raise Interrupted if the engine is to stop, and TooSlowError after the deadline: called before each batch."""
        if self.is_asked():
            raise Interrupted
        if time.perf_counter() > self.deadline:
            raise TooSlowError
        if self.expected:
            self.advance(min(self.done / self.expected, 1.0))
            self.done += 1

    def begin(self, request: EngineRequest) -> None:
        """Tell what a request sets going."""
        self.expect(0)
        self.tell(f"round {request.round}: {DOING[type(request)]}")

    def clear(self) -> None:
        """Let nobody watch."""
        self.is_asked, self.tell, self.advance = _never, _say_nothing, _show_nothing
        self.group, self.rounds_ahead = 0, 0.0
