"""Random membership: each client joins and leaves at most once, in rounds drawn at random.

Intuition: people buy and lose phones, a few every week.

    clients 0 … ⌈q₀N⌉−1 are members from the start;  every other client joins before round 1, 2, … with probability a
    a member leaves before each later round with probability d, and does not come back

Reduces to: the federation without membership when q₀ = 1 and d = 0.
Differs from the paper: the paper studies single arrivals and departures. What each means for the objective is set
by `turnover`.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

import math

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import View
from turnout.settings import PositiveShare, Share, rule

NEVER = np.iinfo(np.int64).max // 4  # a round that no run reaches


def geometric_draws(uniforms: Floats, prob: float) -> Ids:
    """Return the number of trials until the first success, 1, 2, …, for each uniform number in [0, 1)."""
    if prob == 0:
        return np.full(len(uniforms), NEVER)
    if prob == 1:
        return np.ones(len(uniforms), dtype=np.int64)
    with np.errstate(over="ignore"):  # an overflow is cut to NEVER
        tries = np.minimum(np.floor(np.log1p(-uniforms) / np.log1p(-prob)), NEVER)
    return 1 + np.asarray(tries, dtype=np.int64)


@rule("fleet.membership")
class Random:
    """Random arrivals and departures."""

    present: PositiveShare = 0.5  # share q₀ of the clients that are members from the start, by id, above 0 to 1
    arrival_prob: Share = 0.02  # probability a per round that a client that has not joined yet joins, 0 to 1
    departure_prob: Share = 0.01  # probability d per round that a member leaves, 0 to 1; 0 is no departures

    def stays(self, view: View) -> tuple[Ids, Ids]:
        """Return the first round of each client, 0 for those there at the start, and the first in which it is gone."""
        total = view.population.num_clients
        ids = np.arange(total)
        draws = view.streams.uniforms("membership", 0, ids, 2)
        at_start = ids < math.ceil(self.present * total)
        first = np.where(at_start, 1, geometric_draws(draws[:, 0], self.arrival_prob))
        return np.where(at_start, 0, first), first + geometric_draws(draws[:, 1], self.departure_prob)

    def members(self, view: View) -> Ids:
        """Return who has joined and not left by this round."""
        first, gone = self.stays(view)
        return np.flatnonzero((first <= view.round) & (view.round < gone))
