"""The fleet of devices: availability, completed work, durations, and which clients join and leave."""

from dataclasses import field

from turnout.axes import default_rule
from turnout.errors import ConfigError
from turnout.fleet.availability import (
    Always,
    Bernoulli,
    Cyclic,
    Diurnal,
    HalfAndHalf,
    Markov,
    Never,
    Recorded,
    Resampled,
)
from turnout.fleet.clock import Deadline
from turnout.fleet.devices import Lognormal, Phones
from turnout.fleet.membership import Random, Scheduled
from turnout.fleet.recordings import read_recording
from turnout.fleet.trace_files import read_trace, write_trace
from turnout.fleet.traces import Trace
from turnout.fleet.work import Complete, Fraction, RuanTraces, Stragglers
from turnout.protocols import Availability, Clock, Membership, Work
from turnout.settings import rule
from turnout.traits import AvailabilityTraits, traits_of

__all__ = [
    "Always",
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
    "Resampled",
    "RuanTraces",
    "Scheduled",
    "Stragglers",
    "Trace",
    "read_recording",
    "read_trace",
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
