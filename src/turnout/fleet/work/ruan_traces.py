"""Ruan's participation traces: what share of the asked steps a device completes, from eight recorded behaviours.

Intuition: some devices nearly always finish, some stop half-way, and a few now and then do nothing.

    f ~ Beta(a, b) with the trace's mean m and deviation d
    traces hi, mi, lo:  f = 0 with probability π₀, else Beta fitted so that the whole keeps m and d
    s = clip(round(f·τ), 1, τ)          0 instead of 1 for hi, mi, lo

    trace   T_0     T_30       T_50       T_70       T_90       T_hi       T_mi       T_lo
    m, d    1, 0    .753,.148  .672,.113  .572,.117  .563,.148  .825,.233  .741,.223  .512,.183

Reduces to: complete work when traces = 1.
Differs from the paper: the raw traces are not public, so their means and deviations are matched; the paper gives no
probability of doing nothing, so π₀ is a setting. Each device draws one of the first `traces` once per run.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954, Table 2.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.streams import Floats, Ids

MEANS: Floats = np.array([1.0, 0.753, 0.672, 0.572, 0.563, 0.825, 0.741, 0.512])
DEVIATIONS: Floats = np.array([0.0, 0.148, 0.113, 0.117, 0.148, 0.233, 0.223, 0.183])
NEVER_IDLE = 5  # the first five traces have no zeros
MOST_IDLE = 0.073  # beyond it no Beta has the mean and deviation that are left for T_hi


def fitted_beta(mean: float, deviation: float, idle_prob: float = 0.0) -> tuple[float, float]:
    """Return (a, b) such that idling with a probability, and else Beta(a, b), has this mean and deviation."""
    awake_mean = mean / (1.0 - idle_prob)
    variance = (deviation**2 + mean**2) / (1.0 - idle_prob) - awake_mean**2
    total = awake_mean * (1.0 - awake_mean) / variance - 1.0  # a + b
    return awake_mean * total, (1.0 - awake_mean) * total


def rounded(fraction: Floats, asked: Ids, least: Ids | int) -> Ids:
    """Return the steps that a fraction of the asked work is: to the nearest, half up, cut to [least, asked]."""
    return np.clip(np.floor(fraction * asked + 0.5), np.minimum(least, asked), asked).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuanTraces:
    """Completed shares as in Ruan's Table 2."""

    traces: int = 8  # |T|: devices follow one of the first so many
    idle_prob: float = 0.05  # π₀: the probability of doing nothing, for T_hi, T_mi and T_lo

    def __post_init__(self) -> None:
        if not 1 <= self.traces <= len(MEANS):
            raise ConfigError(
                f"RuanTraces needs traces in 1…{len(MEANS)}; got {self.traces}. Change fleet.work.traces."
            )
        if not 0 <= self.idle_prob <= MOST_IDLE:
            raise ConfigError(
                f"RuanTraces needs idle_prob in [0, {MOST_IDLE}], or the recorded means and deviations cannot be kept; "
                f"got {self.idle_prob}. Change fleet.work.idle_prob."
            )

    def assigned(self, clients: Ids, view: View) -> Ids:
        """Return the trace of each of these clients, the same for the whole run."""
        draws = view.streams.uniforms("work trace", 0, clients)[:, 0]
        return np.floor(draws * self.traces).astype(np.int64)

    def fractions(self, clients: Ids, view: View) -> Floats:
        """Return the share of the asked work that each completes in this round."""
        trace = self.assigned(clients, view)
        draws = view.streams.uniforms("completed", view.round, clients, 2)
        share = np.ones(len(clients))
        for which in np.unique(trace[trace > 0]):
            idle = self.idle_prob if which >= NEVER_IDLE else 0.0
            a, b = fitted_beta(MEANS[which], DEVIATIONS[which], idle)
            mine = np.flatnonzero(trace == which)
            share[mine] = np.where(draws[mine, 0] < idle, 0.0, betaincinv(a, b, draws[mine, 1]))
        return share

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return how many of the asked steps each client completes."""
        least = (self.assigned(clients, view) < NEVER_IDLE).astype(np.int64)
        return rounded(self.fractions(clients, view), asked, least)
