"""Who is up, and how much of the asked work they do."""

from dataclasses import dataclass, field

from turnout.fleet.availability import Always, Bernoulli
from turnout.fleet.work import Complete
from turnout.protocols import Availability, Clock, Membership, Work

__all__ = ["Always", "Bernoulli", "Complete", "Fleet"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The devices: when they are up, how much they get done, how long it takes, who comes and goes."""

    availability: Availability = field(default_factory=Always)
    work: Work = field(default_factory=Complete)
    clock: Clock | None = None  # none: rounds take no time
    membership: Membership | None = None  # none: everyone is there from the first round to the last
