"""Replayed clock: each client takes as long as in the same round of a recorded run, and the server ends rounds anew.

Intuition: the devices are as fast as they were; how long to wait for them is the server's choice.

    time_i = recorded seconds of i in this round                for the steps that it then did
    time_i = s_i · recorded seconds / recorded steps            for fewer or more steps than it then did
    time_i = s_i · median seconds per step of its other rounds  if it was not asked then

Recorded times include the transfers of the recorded model. The deadline D and over-selection f are as in the deadline
clock: a client with time_i > D completes the steps it can by D, and the first ⌈|S| / f⌉ updates count.

Reduces to: the deadline clock for a recording in which every client always takes the same time per step and none for
transfers.
Reference: none needed.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import Problem
from turnout.fleet.clock.deadline import end_of_round
from turnout.fleet.replay import Mask, RecordedPace, Replay
from turnout.protocols import Population, Timing, View
from turnout.settings import GIVEN, Positive, Range, When, rule


@rule("fleet.clock")
class ReplayedClock(Replay):
    """Seconds from a journal, with an optional deadline and over-selection."""

    # deadline D of a round in seconds, greater than 0; none waits for every update
    deadline_seconds: Positive | None = None
    # over-selection factor f, 1 or more: the first 1/f of the cohort's updates count; 1 is none, 1.3 is usual
    over_selection: Annotated[float, Range(least=1, ceiling=1e6)] = 1.0
    # what a client that misses the deadline returns: "deliver" the steps completed by then, "drop" nothing
    incomplete: Annotated[Literal["deliver", "drop"], When(deadline_seconds=GIVEN)] = "deliver"
    # duration in seconds of a round in which no client returns an update and there is no deadline, greater than 0
    idle_seconds: Positive = 60.0

    @property
    def displaces(self) -> bool:
        """Whether one client's update can exclude another's from the round."""
        return self.over_selection > 1

    @property
    def has_deadline(self) -> bool:
        """Whether a round ends at a time, whoever is still at work."""
        return self.deadline_seconds is not None

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the run cannot be replayed on these clients, or has no times."""
        found = list(Replay.population_problems(self, population))
        yield from found
        if not found and not self.recording.has_seconds:
            yield Problem(
                f"ReplayedClock needs a recording of how long clients took; {self.recording.name} has none, because it "
                'ran without a clock. Leave fleet.clock out, or set another, such as "deadline".',
                "fleet.clock",
            )

    def pace(self, clients: Ids, model_bytes: int | Ids, view: View) -> RecordedPace:
        """Return the speed of these clients in this round."""
        return self.recording.pace(clients, view)

    def run(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Timing:
        """Return the steps that each client completes in time, and the duration of the round."""
        if len(clients) == 0:
            return Timing(done=steps, late=np.zeros(0, dtype=bool), round_seconds=self.idle_seconds)
        return end_of_round(self.pace(clients, model_bytes, view), steps, self)

    def seconds(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Floats:
        """Return how long each client takes for all of its work, transfers included, without a deadline."""
        return self.pace(clients, model_bytes, view).duration(steps)

    def is_recorded(self, steps: Ids, clients: Ids, view: View) -> Mask:
        """Return for each client whether its time for so many steps is recorded, not extrapolated."""
        return self.recording.has_pace(steps, clients, view, self.deadline_seconds)
