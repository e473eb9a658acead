"""Ruan's participation traces: the share of the asked steps that a device completes, from eight recorded traces.

Intuition: some devices nearly always finish, some stop half-way, and a few sometimes do nothing.

    f ~ Beta(a, b) with the trace's mean m and standard deviation d
    traces hi, mi, lo:  f = 0 with probability π₀, else Beta fitted so that the mixture has m and d
    steps   s = clip(round(f·τ), 1, τ)          0 instead of 1 for hi, mi, lo
    epochs  s = ⌈n/B⌉ · clip(round(f·E), 1, E)  likewise: whole epochs, so the share of work does not depend on n

    trace   T_0     T_30       T_50       T_70       T_90       T_hi       T_mi       T_lo
    m, d    1, 0    .753,.148  .672,.113  .572,.117  .563,.148  .825,.233  .741,.223  .512,.183

Reduces to: complete work when traces = 1.
Differs from the paper: the raw traces are not public, so the rule matches their means and standard deviations; the
paper gives no probability of doing nothing, so π₀ is a setting. Each device draws one of the first `traces` once per
run.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954, Table 2.
"""

from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import View
from turnout.settings import Range, When, rule

MEANS: Floats = np.array([1.0, 0.753, 0.672, 0.572, 0.563, 0.825, 0.741, 0.512])
DEVIATIONS: Floats = np.array([0.0, 0.148, 0.113, 0.117, 0.148, 0.233, 0.223, 0.183])
NEVER_IDLE = 5  # the first five traces have no zeros
MOST_IDLE = 0.073  # for a larger probability no Beta distribution fits T_hi
IdleProb = Annotated[float, Range(least=0, most=MOST_IDLE), When(traces=(6, 7, 8))]


def beta_parameters(mean: float, deviation: float, idle_prob: float = 0.0) -> tuple[float, float]:
    """Return (a, b) such that 0 with probability idle_prob, else Beta(a, b), has this mean and deviation."""
    awake_mean = mean / (1.0 - idle_prob)
    variance = (deviation**2 + mean**2) / (1.0 - idle_prob) - awake_mean**2
    total = awake_mean * (1.0 - awake_mean) / variance - 1.0  # a + b
    return awake_mean * total, (1.0 - awake_mean) * total


def rounded(fraction: Floats, asked: Ids, least: Ids | int) -> Ids:
    """Return this fraction of the asked steps or epochs: rounded, halves up, and clipped to [least, asked]."""
    return np.clip(np.floor(fraction * asked + 0.5), np.minimum(least, asked), asked).astype(np.int64)


@rule("fleet.work")
class RuanTraces:
    """Completed shares as in Ruan's Table 2."""

    # number |T| of traces that devices draw from, in the order of the table, 1 to 8; 1 is complete work, 8 is all
    traces: Annotated[int, Range(least=1, most=len(MEANS))] = 8
    # probability π₀ that a device with trace T_hi, T_mi or T_lo does nothing in a round, 0 to 0.073
    idle_prob: IdleProb = 0.05
    # completed work is rounded to whole local steps ("steps") or whole local epochs ("epochs", needs local.epochs)
    unit: Literal["steps", "epochs"] = "steps"

    def assigned(self, clients: Ids, view: View) -> Ids:
        """Return the trace of each of these clients, the same for the whole run."""
        draws = view.streams.uniforms("work trace", 0, clients)[:, 0]
        return np.floor(draws * self.traces).astype(np.int64)

    def fractions(self, clients: Ids, view: View) -> Floats:
        """Return the share of the asked work that each client completes in this round."""
        from scipy.special import betaincinv  # the import takes a quarter of a second

        trace = self.assigned(clients, view)
        draws = view.streams.uniforms("completed", view.round, clients, 2)
        share = np.ones(len(clients))
        for which in np.unique(trace[trace > 0]):
            idle = self.idle_prob if which >= NEVER_IDLE else 0.0
            a, b = beta_parameters(MEANS[which], DEVIATIONS[which], idle)
            rows = np.flatnonzero(trace == which)
            share[rows] = np.where(draws[rows, 0] < idle, 0.0, betaincinv(a, b, draws[rows, 1]))
        return share

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return how many of the asked steps, or epochs, each client completes."""
        least = (self.assigned(clients, view) < NEVER_IDLE).astype(np.int64)
        return rounded(self.fractions(clients, view), asked, least)
