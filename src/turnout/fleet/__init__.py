"""The fleet of devices: availability, completed work, durations, and which clients join and leave."""

from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from turnout.axes import default_rule
from turnout.errors import ConfigError
from turnout.fleet.availability import (
    Always,
    Appealed,
    Bernoulli,
    Cyclic,
    Diurnal,
    HalfAndHalf,
    Markov,
    Never,
    Recorded,
    ReplayedAvailability,
    Resampled,
)
from turnout.fleet.clock import Deadline, ReplayedClock
from turnout.fleet.clock.deadline import Incomplete
from turnout.fleet.devices import Lognormal, Phones
from turnout.fleet.membership import Random, ReplayedMembership, Scheduled
from turnout.fleet.recordings import read_recording
from turnout.fleet.replay import Recording, RunSeed, recording_of
from turnout.fleet.trace_files import read_trace, write_trace
from turnout.fleet.traces import Trace
from turnout.fleet.work import Complete, Fraction, ReplayedWork, RuanTraces, Stragglers
from turnout.protocols import Availability, Clock, Membership, Work
from turnout.settings import Positive, Range, rule
from turnout.traits import AvailabilityTraits, traits_of

__all__ = [
    "Always",
    "Appealed",
    "Bernoulli",
    "Complete",
    "Cyclic",
    "Deadline",
    "Diurnal",
    "Fleet",
    "Fraction",
    "HalfAndHalf",
    "Lognormal",
    "Markov",
    "Never",
    "Phones",
    "Random",
    "Recorded",
    "Recording",
    "ReplayedAvailability",
    "ReplayedClock",
    "ReplayedMembership",
    "ReplayedWork",
    "Resampled",
    "RuanTraces",
    "Scheduled",
    "Stragglers",
    "Trace",
    "read_recording",
    "read_trace",
    "replay",
    "write_trace",
]


@rule("fleet")
class Fleet:
    """The devices: availability, completed work, durations, and which clients join and leave."""

    # rule for the clients that are available in a round; by default all clients are always available
    availability: Availability = field(default_factory=default_rule("availability"))
    # rule for how many of the asked local steps a client completes; by default all of them
    work: Work = field(default_factory=default_rule("work"))
    clock: Clock | None = None  # rule for how long computation and transfer take; none is no time
    membership: Membership | None = None  # rule for clients that join and leave; none is a fixed set of clients

    def __post_init__(self) -> None:
        if self.clock is None and traits_of(AvailabilityTraits, self.availability).needs_clock:
            name = type(self.availability).__name__
            raise ConfigError(
                f"{name} needs a clock, because it depends on simulated time; this fleet has none. "
                'Set fleet.clock to "deadline", or count in rounds (round_seconds of recorded, period_rounds of '
                "diurnal).",
                setting="fleet.clock",
            )


def replay(
    *,
    run: str | Path | Recording,
    arm: str | None = None,
    seed: RunSeed | None = None,
    deadline_seconds: Positive | None = None,
    over_selection: Annotated[float, Range(least=1, ceiling=1e6)] = 1.0,
    incomplete: Incomplete = "deliver",
    idle_seconds: Positive = 60.0,
) -> Fleet:
    """Return the fleet of a recorded run: who belonged and was up, how far each client got, and how long it took.

    Args:
        run: folder of the recorded run, which `turnout run` or a deployment wrote.
        arm: arm of the recorded run; none is its only arm.
        seed: seed of the recorded run; none is its only seed.
        deadline_seconds: deadline D of a round in seconds, greater than 0; none waits for every update.
        over_selection: over-selection factor f, 1 or more: the first 1/f of the cohort's updates count.
        incomplete: what a client that misses the deadline returns: "deliver" the steps completed by then, "drop" none.
        idle_seconds: duration in seconds of a round in which no client returns an update and there is no deadline.
    """
    recording = recording_of(run, arm, seed)
    which: dict[str, Any] = {"folder": run, "arm": arm, "seed": seed}
    ending: dict[str, Any] = {"over_selection": over_selection, "idle_seconds": idle_seconds}
    if deadline_seconds is not None:
        ending |= {"deadline_seconds": deadline_seconds, "incomplete": incomplete}
    if not recording.has_seconds and (deadline_seconds is not None or over_selection > 1):
        raise ConfigError(
            f"A deadline and over-selection need a recording of how long clients took; {recording.name} has none, "
            "because it ran without a clock. Leave fleet.deadline_seconds and fleet.over_selection out.",
            setting="fleet.over_selection" if deadline_seconds is None else "fleet.deadline_seconds",
        )
    return Fleet(
        availability=ReplayedAvailability(**which),
        work=ReplayedWork(**which),
        clock=ReplayedClock(**which, **ending) if recording.has_seconds else None,
        membership=None if recording.members is None else ReplayedMembership(**which),
    )


PRESETS: dict[str, Callable[..., Fleet]] = {"journal": replay}  # whole fleets, by their name in a study file
