"""Diurnal availability: the probability to be available follows a daily cycle, shifted by time zone.

Intuition: phones charge at night, and night is at a different time in each time zone.

    q_i(t) = trough + (peak − trough) · (1 + sin 2π(t / period + z_i / Z)) / 2
    i ∈ A_t with probability q_i(t), independently; z_i ∈ {0, …, Z−1} drawn once per client

Reduces to: Bernoulli with prob = peak when trough = peak, draw for draw.
Reference: Bonawitz et al. Towards federated learning at scale. MLSys 2019. arXiv:1902.01046 (the daily rhythm).
"""

import math
from typing import Annotated

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.settings import Count, Positive, Share, When, rule


def daily(days: float, phase: Floats, *, trough: float, peak: float) -> Floats:
    """Return q_i after so many days; a phase of 1 is a whole day."""
    return trough + (peak - trough) * (1.0 + np.sin(2.0 * np.pi * (math.fmod(days, 1.0) + phase))) / 2.0


@rule("fleet.availability")
class Diurnal:
    """A probability that depends on the time of day."""

    peak: Share = 0.5  # largest probability to be available, trough to 1
    trough: Share = 0.05  # smallest probability to be available, 0 to peak; trough = peak is Bernoulli
    period_rounds: Annotated[Positive, When(period_seconds=None)] = 24.0  # length of a day in rounds, greater than 0
    # length of a day in simulated seconds, greater than 0, needs fleet.clock (86400 is a real day); none uses
    # period_rounds
    period_seconds: Positive | None = None
    zones: Count = 1  # number Z of time zones, 1 or more, evenly spaced over the day; 1 is the same time for all

    def __post_init__(self) -> None:
        if self.trough > self.peak:
            raise ConfigError(
                f"Diurnal needs trough <= peak; got {self.trough} and {self.peak}. "
                "Change fleet.availability.trough or peak.",
                setting="fleet.availability.trough",
            )

    @property
    def needs_clock(self) -> bool:
        """Whether the rule depends on simulated time."""
        return self.period_seconds is not None

    def up(self, view: View) -> Ids:
        """Return the clients that are available by their own draw."""
        everyone = view.population.everyone
        coin = view.streams.uniforms("availability", view.round, everyone)[:, 0]
        return everyone[coin < self.probability(everyone, view)]

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return q_i of these clients at this time of day."""
        zone = np.floor(view.streams.uniforms("time zone", 0, clients)[:, 0] * self.zones)
        seconds = self.period_seconds
        days = view.round / self.period_rounds if seconds is None else view.sim_seconds / seconds
        return daily(days, zone / self.zones, trough=self.trough, peak=self.peak)
