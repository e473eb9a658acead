"""Resampled availability: a new random subset of clients every few rounds.

Intuition: the set of available clients changes from time to time, and stays the same in between.

    A_t = n clients sampled uniformly without replacement, in every round t ≤ settle and then every e rounds

Reduces to: always available when n = N; an independent sample each round when e = 1.
Reference: Fourati, Kharrat, Aggarwal, Alouini, Canini (FilFL). ECAI 2024. arXiv:2302.06599.
"""

from collections.abc import Iterator

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import Problem
from turnout.protocols import Population, View
from turnout.settings import Clients, Count, CountOrZero, rule


def last_draw(round: int, every: int, settle: int) -> int:
    """Return the last round, up to this one, in which a subset was sampled."""
    return round if round <= settle else round - (round - settle - 1) % every


@rule("fleet.availability")
class Resampled:
    """A random subset that changes every few rounds."""

    size: Clients  # number n of available clients, from 1 to the number of clients
    every: Count = 5  # number of rounds e between two samples, 1 or more; 1 samples in every round, 5 is usual
    settle: CountOrZero = 5  # number of first rounds that each have their own sample, 0 or more; 5 is usual

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why there are too few clients."""
        if self.size > population.num_clients:
            yield Problem(
                f"Resampled needs size <= the number of clients; got {self.size} > {population.num_clients}. "
                f"Set fleet.availability.size to {population.num_clients} or less.",
                "fleet.availability.size",
            )

    def up(self, view: View) -> Ids:
        """Return the subset of this round, or all members if there are fewer."""
        everyone = view.population.everyone
        if self.size >= len(everyone):
            return everyone
        drawn_in = last_draw(view.round, self.every, self.settle)
        lots = view.streams.uniforms("availability", drawn_in, everyone)[:, 0]
        return everyone[np.sort(np.argpartition(lots, self.size)[: self.size])]

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return n divided by the number of members, at most 1."""
        return np.full(len(clients), min(self.size / max(len(view.population.everyone), 1), 1.0))
