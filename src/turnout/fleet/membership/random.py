"""Random membership: each client comes and goes once, at rounds drawn by key.

Intuition: people buy phones and lose them, a few every week.

    clients 0 … ⌈q₀N⌉−1 are there at the start;  each other comes before round 1, 2, … with probability a in each
    once there for a round, it leaves before each later one with probability d, and does not come back

Reduces to: the federation without membership when q₀ = 1 and d = 0.
Differs from the paper: the paper studies single arrivals and departures. What each means is as in `scheduled`.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.fleet.membership.terms import Terms
from turnout.protocols import Ask, Changes, Population, View
from turnout.settings import PositiveShare, Share, rule

if TYPE_CHECKING:
    from turnout.requests import Steps

NEVER = np.iinfo(np.int64).max // 4  # a round that no run reaches


def waited(uniforms: Floats, prob: float) -> Ids:
    """Return the number of tries until the first success, 1, 2, …, of each uniform in [0, 1)."""
    if prob == 0:
        return np.full(len(uniforms), NEVER)
    if prob == 1:
        return np.ones(len(uniforms), dtype=np.int64)
    with np.errstate(over="ignore"):  # a hopeless wait is cut to NEVER
        tries = np.minimum(np.floor(np.log1p(-uniforms) / np.log1p(-prob)), NEVER)
    return 1 + np.asarray(tries, dtype=np.int64)


@rule("fleet.membership")
class Random(Terms):
    """Comings and goings by chance."""

    present: PositiveShare = 0.5  # q₀: the share of clients, by id, that are there at the start
    arrival_prob: Share = 0.02  # a: that a client still to come does so, per round
    departure_prob: Share = 0.01  # d: that a client that is there leaves, per round

    def at_start(self, population: Population) -> Ids:
        """Return the first share of the clients, by id; at least one."""
        return np.arange(math.ceil(self.present * population.num_clients))

    def stays(self, view: View) -> tuple[Ids, Ids]:
        """Return the first round of each client, and the first in which it is gone."""
        population = view.population
        ids = np.arange(population.num_clients)
        draws = view.streams.uniforms("membership", 0, ids, 2)
        first = np.where(ids < len(self.at_start(population)), 1, waited(draws[:, 0], self.arrival_prob))
        return first, first + waited(draws[:, 1], self.departure_prob)

    def changes(self, view: View, ask: Ask) -> "Steps[Changes]":
        """Return who is due to have come or gone by this round and has not yet."""
        there = np.zeros(view.population.num_clients, dtype=bool)
        there[view.population.everyone] = True
        first, gone = self.stays(view)
        due = (first <= view.round) & (view.round < gone)
        return (yield from self.moved(np.flatnonzero(due & ~there), np.flatnonzero(there & ~due), view, ask))
