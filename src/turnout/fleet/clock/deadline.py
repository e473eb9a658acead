"""Deadline clock: computation and transfer take time; a round ends when enough clients have returned, or at a deadline.

Intuition: the server does not wait for stragglers.

    time_i = bytes / down_i + s_i · seconds_i + bytes / up_i
    a client with time_i > D completes ⌊(D − transfers) / seconds_i⌋ steps by D: it returns these at D, or nothing
    the first ⌈|S| / f⌉ updates count; later ones are late
    the round ends with the last counted update; at D if there are fewer; after idle_seconds if none is expected

A client does not know in advance that it will not finish. It trains until the deadline, and its update arrives at D,
after the updates of all clients that finished. With over-selection, clients that finish therefore always come first.

Reduces to: complete work when there is no deadline and f = 1; the clock then only measures time.
Differs from the paper: a client that does no work returns nothing, and the round stays open until D. Without a deadline
the server does not wait for such a client, since the wait would never end.
Reference: Bonawitz et al. MLSys 2019. arXiv:1902.01046 (deadline and over-selection).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.errors import Problem
from turnout.fleet.devices import Lognormal, Phones, amounts
from turnout.protocols import Population, Timing, View
from turnout.settings import GIVEN, Positive, Range, When, rule


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of some clients in a round."""

    seconds_per_step: Floats
    transfer_seconds: Floats  # download and upload together

    def duration(self, steps: Ids) -> Floats:
        """Return the seconds from the start of the download to the end of the upload."""
        return np.asarray(self.transfer_seconds + steps * self.seconds_per_step)

    def steps_by(self, deadline_seconds: float, steps: Ids) -> Ids:
        """Return how many of the steps a client can complete and upload by the deadline."""
        possible = (deadline_seconds - self.transfer_seconds) / self.seconds_per_step
        return np.clip(np.floor(possible + 1e-9), 0, steps).astype(np.int64)  # a step that ends at D counts


def is_early(duration: Floats, answers: NDArray[np.bool_], quota: int) -> NDArray[np.bool_]:
    """Return for each client whether its update is among the first `quota`; ties go to the lowest position."""
    order = np.argsort(np.where(answers, duration, np.inf), kind="stable")
    early = np.zeros(len(duration), dtype=bool)
    early[order[:quota]] = True
    return np.asarray(early & answers)


Incomplete = Literal["deliver", "drop"]


class Speed(Protocol):
    """How fast clients are: `Pace`, or as a journal recorded it."""

    def duration(self, steps: Ids) -> Floats:
        """Return the seconds from the start of the download to the end of the upload."""
        ...

    def steps_by(self, deadline_seconds: float, steps: Ids) -> Ids:
        """Return how many of the steps a client can complete and upload by the deadline."""
        ...


class Ending(Protocol):
    """When a server ends a round: settings that every clock with a deadline has."""

    @property
    def deadline_seconds(self) -> float | None:
        """Deadline D; None waits for every update."""
        ...

    @property
    def over_selection(self) -> float:
        """Over-selection factor f."""
        ...

    @property
    def incomplete(self) -> Incomplete:
        """What a client that misses the deadline returns."""
        ...

    @property
    def idle_seconds(self) -> float:
        """Duration of a round in which no client returns an update."""
        ...


def end_of_round(speed: Speed, steps: Ids, ending: Ending) -> Timing:
    """Return what clients of this speed complete in time, and how long the round lasts."""
    deadline = ending.deadline_seconds
    reached = steps if deadline is None else speed.steps_by(deadline, steps)
    done = reached if ending.incomplete == "deliver" else np.where(reached == steps, steps, 0)
    duration = speed.duration(done)
    if deadline is not None:
        duration = np.where(done < steps, deadline, duration)  # an incomplete update arrives at the deadline
    quota = math.ceil(len(steps) / ending.over_selection - 1e-9)
    is_counted = is_early(duration, done > 0, quota)
    counted = duration[is_counted]
    if len(counted) < quota and deadline is not None:
        round_seconds = deadline
    else:
        round_seconds = float(counted.max()) if len(counted) else ending.idle_seconds
    return Timing(
        done=np.where(is_counted, done, 0),
        late=(steps > 0) & ~is_counted,
        round_seconds=round_seconds,
        progress=reached,
        seconds=np.where(steps > 0, duration, np.nan),
    )


Bandwidth = Annotated[float, Range(above=0, ceiling=math.inf)]  # infinite: transfers take no time
Bandwidths = Annotated[Bandwidth | tuple[Bandwidth, ...] | Lognormal, When(phones=None)]


@rule("fleet.clock")
class Deadline:
    """Seconds for computation and transfer, with an optional deadline and over-selection."""

    # seconds per local step, greater than 0: one number for all clients, one per client, or a lognormal distribution
    # { median, sigma }
    seconds_per_step: Positive | tuple[Positive, ...] | Lognormal = 0.1
    # download bandwidth in bytes per second, greater than 0: one number, one per client, or { median, sigma }; infinity
    # is no download time
    down_bandwidth: Bandwidths = 1e6
    # upload bandwidth in bytes per second, greater than 0: one number, one per client, or { median, sigma }; usually
    # below the download bandwidth
    up_bandwidth: Bandwidths = 2.5e5
    # use recorded phones and bandwidths; seconds_per_step is then that of the median phone; none uses the
    # three settings above
    phones: Phones | None = None
    # deadline D of a round in seconds, greater than 0; none waits for every update
    deadline_seconds: Positive | None = None
    # over-selection factor f, 1 or more: the first 1/f of the cohort's updates count; 1 is none, 1.3 is usual
    over_selection: Annotated[float, Range(least=1, ceiling=1e6)] = 1.0
    # what a client that misses the deadline returns: "deliver" the steps completed by then, "drop" nothing
    incomplete: Annotated[Incomplete, When(deadline_seconds=GIVEN)] = "deliver"
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
        """Yield lists of the wrong length, and why recorded phones cannot be read."""
        for name in ("seconds_per_step", "down_bandwidth", "up_bandwidth"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != population.num_clients:
                yield Problem(
                    f"Deadline needs one {name}, or one per client; got {len(value)} for {population.num_clients} "
                    f"clients. Change fleet.clock.{name}.",
                    f"fleet.clock.{name}",
                )
        yield from () if self.phones is None else self.phones.population_problems(population)

    def pace(self, clients: Ids, model_bytes: int | Ids, view: View) -> Pace:
        """Return the speed of these clients in this round."""
        seconds = amounts(self.seconds_per_step, "seconds_per_step", clients, view)
        if self.phones is not None:
            seconds = seconds * self.phones.slowness(clients, view)
            down, up = self.phones.bandwidths(clients, view)
        else:
            down = amounts(self.down_bandwidth, "down_bandwidth", clients, view)
            up = amounts(self.up_bandwidth, "up_bandwidth", clients, view)
        if view.devices is not None and view.devices.step_costs is not None:
            seconds = seconds * view.devices.step_costs[clients]
        return Pace(seconds, model_bytes / down + model_bytes / up)

    def run(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Timing:
        """Return the steps that each client completes in time, and the duration of the round."""
        if len(clients) == 0:
            return Timing(done=steps, late=np.zeros(0, dtype=bool), round_seconds=self.idle_seconds)
        return end_of_round(self.pace(clients, model_bytes, view), steps, self)

    def seconds(self, clients: Ids, steps: Ids, model_bytes: int | Ids, view: View) -> Floats:
        """Return how long each client takes for all of its work, transfers included, without a deadline."""
        return self.pace(clients, model_bytes, view).duration(steps)
