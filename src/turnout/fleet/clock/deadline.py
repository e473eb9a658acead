"""Deadline clock: compute and transfer take time, and a round is closed when enough have answered or time is up.

Intuition: a server does not wait for the slowest phone.

    time_i = bytes / down_i + s_i · seconds_i + bytes / up_i
    a client with time_i > D has done ⌊(D − transfers) / seconds_i⌋ steps by D: it delivers those at D, or nothing
    the first ⌈|S| / f⌉ answers count; later ones are late
    the round lasts until the last counted answer, until D where fewer come, and idle_seconds where nobody is waited for

A client cannot know beforehand that it will not finish: it works until the deadline, and its answer is there at D,
after the answers of all who finished. So with over-selection those who finish always come first.

Reduces to: complete work when there is no deadline and f = 1: the clock then only tells the time.
Differs from the paper: a client that never answers, because it does no work at all, holds a round open until D; without
a deadline it is not waited for, since nothing would ever end that wait.
Reference: Bonawitz et al. MLSys 2019. arXiv:1902.01046 (deadline and over-selection).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.fleet.devices import Lognormal, Phones, amounts
from turnout.protocols import Population, Timing, View
from turnout.settings import GIVEN, Positive, Range, When, rule


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast some clients are in a round."""

    seconds_per_step: Floats
    transfer_seconds: Floats  # down and up

    def duration(self, steps: Ids) -> Floats:
        """Return the seconds from being asked to having answered."""
        return np.asarray(self.transfer_seconds + steps * self.seconds_per_step)

    def steps_by(self, deadline_seconds: float, steps: Ids) -> Ids:
        """Return how many of the steps can be done and sent by the deadline."""
        left = (deadline_seconds - self.transfer_seconds) / self.seconds_per_step
        return np.clip(np.floor(left + 1e-9), 0, steps).astype(np.int64)  # a step that ends at D counts


def is_early(duration: Floats, answers: NDArray[np.bool_], wanted: int) -> NDArray[np.bool_]:
    """Return which of the answers are among the first so many; ties go to the lowest place."""
    order = np.argsort(np.where(answers, duration, np.inf), kind="stable")
    early = np.zeros(len(duration), dtype=bool)
    early[order[:wanted]] = True
    return np.asarray(early & answers)


Incomplete = Literal["deliver", "drop"]
Bandwidth = Annotated[float, Range(above=0, ceiling=math.inf)]  # infinite: transfers take no time
Bandwidths = Annotated[Bandwidth | tuple[Bandwidth, ...] | Lognormal, When(phones=None)]


@rule("fleet.clock")
class Deadline:
    """Seconds for compute and transfer, with an optional deadline and over-selection."""

    seconds_per_step: Positive | tuple[Positive, ...] | Lognormal = 0.1  # for all, per client, or { median, sigma }
    down_bandwidth: Bandwidths = 1e6  # bytes a second
    up_bandwidth: Bandwidths = 2.5e5  # bytes a second
    phones: Phones | None = None  # recorded phones: seconds_per_step is the median phone's, bandwidths are recorded
    deadline_seconds: Positive | None = None  # D; none: the server waits for every answer
    over_selection: Annotated[float, Range(least=1, ceiling=1e6)] = 1.0  # f: of those asked, the first 1/f count
    incomplete: Annotated[Incomplete, When(deadline_seconds=GIVEN)] = "deliver"  # what a late client hands in
    idle_seconds: Positive = 60.0  # how long a round lasts in which nobody answers and there is no deadline

    @property
    def displaces(self) -> bool:
        """Whether one client's answer can keep another's out of the round."""
        return self.over_selection > 1

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield what is wrong with the amounts given, and what the recorded phones lack."""
        for name in ("seconds_per_step", "down_bandwidth", "up_bandwidth"):
            given = getattr(self, name)
            if isinstance(given, tuple) and len(given) != population.num_clients:
                yield (
                    f"Deadline needs one {name}, or one per client; got {len(given)} for {population.num_clients} "
                    f"clients. Change fleet.clock.{name}."
                )
        yield from () if self.phones is None else self.phones.objections_for(population)

    def pace(self, clients: Ids, model_bytes: int, view: View) -> Pace:
        """Return how fast these clients are in this round."""
        seconds = amounts(self.seconds_per_step, "seconds_per_step", clients, view)
        if self.phones is not None:
            seconds = seconds * self.phones.slowness(clients, view)
            down, up = self.phones.bandwidths(clients, view)
        else:
            down = amounts(self.down_bandwidth, "down_bandwidth", clients, view)
            up = amounts(self.up_bandwidth, "up_bandwidth", clients, view)
        return Pace(seconds, model_bytes / down + model_bytes / up)

    def run(self, clients: Ids, steps: Ids, model_bytes: int, view: View) -> Timing:
        """Return what each client gets done in time, and how long the round takes."""
        if len(clients) == 0:
            return Timing(done=steps, late=np.zeros(0, dtype=bool), round_seconds=self.idle_seconds)
        pace = self.pace(clients, model_bytes, view)
        done = self._in_time(pace, steps)
        wanted = math.ceil(len(clients) / self.over_selection - 1e-9)
        duration = self._answered_after(pace, steps, done)
        counted = is_early(duration, done > 0, wanted)
        late = (steps > 0) & ~counted
        return Timing(
            done=np.where(counted, done, 0),
            late=late,
            round_seconds=self._lasts(duration[counted], wanted),
        )

    def seconds(self, clients: Ids, steps: Ids, model_bytes: int, view: View) -> Floats:
        """Return how long each client takes for all of its work, download and upload included; no deadline cuts it."""
        return self.pace(clients, model_bytes, view).duration(steps)

    def _in_time(self, pace: Pace, steps: Ids) -> Ids:
        if self.deadline_seconds is None:
            return steps
        done = pace.steps_by(self.deadline_seconds, steps)
        return done if self.incomplete == "deliver" else np.where(done == steps, steps, 0)

    def _answered_after(self, pace: Pace, steps: Ids, done: Ids) -> Floats:
        """Return the seconds until each answer is there: work cut short is handed in at the deadline."""
        after = pace.duration(done)
        return after if self.deadline_seconds is None else np.where(done < steps, self.deadline_seconds, after)

    def _lasts(self, counted_durations: Floats, wanted: int) -> float:
        if len(counted_durations) < wanted and self.deadline_seconds is not None:
            return self.deadline_seconds
        return float(counted_durations.max()) if len(counted_durations) else self.idle_seconds
