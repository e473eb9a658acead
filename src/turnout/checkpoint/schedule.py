"""When a run saves a checkpoint."""

import math
from typing import Annotated

from turnout.settings import Count, Range, rule

DEFAULT_SECONDS = 30.0


@rule("checkpoint")
class Checkpoint:
    """How often a run saves a checkpoint; it also saves after its first round, and when it ends or is stopped."""

    # save a checkpoint every so many rounds, 1 or more; none: by time only
    rounds: Count | None = None
    # save a checkpoint when so many seconds have passed since the last, 0 or more; 30 if rounds is not set either
    seconds: Annotated[float, Range(least=0, ceiling=math.inf)] | None = None

    def __post_init__(self) -> None:
        if self.rounds is None and self.seconds is None:
            object.__setattr__(self, "seconds", DEFAULT_SECONDS)

    def is_due(self, round: int, seconds: float) -> bool:
        """Return whether to save after this round, given the seconds since the last checkpoint."""
        by_rounds = self.rounds is not None and round > 0 and round % self.rounds == 0
        return by_rounds or (self.seconds is not None and seconds >= self.seconds)
