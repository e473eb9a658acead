"""Resampled availability: a fresh random subset every few rounds.

Intuition: the crowd changes now and then, and stays the same in between.

    A_t = n clients drawn evenly without replacement, drawn anew in every round t ≤ settle and then every e rounds

Reduces to: always up when n = N; an independent draw each round when e = 1.
Reference: Fourati, Kharrat, Aggarwal, Alouini, Canini (FilFL). ECAI 2024. arXiv:2302.06599.
"""

from collections.abc import Iterator

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Population, View
from turnout.settings import Clients, Count, CountOrZero, rule


def last_draw(round: int, every: int, settle: int) -> int:
    """Return the round, at or before this one, in which the subset was drawn."""
    return round if round <= settle else round - (round - settle - 1) % every


@rule("fleet.availability")
class Resampled:
    """A subset that is drawn anew every few rounds."""

    size: Clients  # n
    every: Count = 5  # e: rounds between draws
    settle: CountOrZero = 5  # rounds at the start of which each has a draw of its own

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield why there are too few clients."""
        if self.size > population.num_clients:
            yield (
                f"Resampled needs size <= the number of clients; got {self.size} > {population.num_clients}. "
                f"Set fleet.availability.size to {population.num_clients} or less."
            )

    def up(self, view: View) -> Ids:
        """Return the subset of this round; all who are there when they are fewer."""
        everyone = view.population.everyone
        if self.size >= len(everyone):
            return everyone
        drawn_in = last_draw(view.round, self.every, self.settle)
        lots = view.streams.uniforms("availability", drawn_in, everyone)[:, 0]
        return everyone[np.sort(np.argpartition(lots, self.size)[: self.size])]

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return n over the number of clients who are there, 1 at most."""
        return np.full(len(clients), min(self.size / max(len(view.population.everyone), 1), 1.0))
