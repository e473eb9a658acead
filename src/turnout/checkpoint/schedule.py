"""When a run is saved."""

import math
from typing import Annotated

from turnout.settings import Count, Range, rule

DEFAULT_SECONDS = 30.0


@rule("checkpoint")
class Checkpoint:
    """How often a run in a folder is saved: also after its first round, and whenever it ends or is stopped."""

    rounds: Count | None = None  # save after every so many rounds
    seconds: Annotated[float, Range(least=0, ceiling=math.inf)] | None = None  # save when so many have passed; else 30

    def __post_init__(self) -> None:
        if self.rounds is None and self.seconds is None:
            object.__setattr__(self, "seconds", DEFAULT_SECONDS)

    def is_due(self, round: int, seconds: float) -> bool:
        """Whether to save after this round, so many seconds after the last time."""
        by_rounds = self.rounds is not None and round > 0 and round % self.rounds == 0
        return by_rounds or (self.seconds is not None and seconds >= self.seconds)
