"""Who is up, how much of the asked work they do, how long it takes, and who comes and goes."""

from dataclasses import field

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
    """The devices: when they are up, how much they get done, how long it takes, who comes and goes."""

    availability: Availability = field(default_factory=Always)  # which clients are up in a round
    work: Work = field(default_factory=Complete)  # how much of the asked work each client gets done
    clock: Clock | None = None  # none: rounds take no time
    membership: Membership | None = None  # none: everyone is there from the first round to the last

    def __post_init__(self) -> None:
        if self.clock is None and getattr(self.availability, "needs_clock", False):
            name = type(self.availability).__name__
            raise ConfigError(
                f"{name} follows the time of day, and this fleet has no clock: time would stand still. "
                'Set fleet.clock to "deadline", or count in rounds (round_seconds of recorded, period_rounds of '
                "diurnal)."
            )
