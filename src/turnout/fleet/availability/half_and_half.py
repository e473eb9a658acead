"""Half and half: the first half of the clients in one round, the second half in the next.

Intuition: two halves of the world that are awake in turn, with some missing each time.

    t = 1, 3, 5, …   H = clients 0 … ⌊N/2⌋−1
    t = 2, 4, 6, …   H = clients ⌊N/2⌋ … N−1
    A_t = H without ⌊a·|H|⌋ of its clients, drawn evenly

Reduces to: two cyclic groups in the order of ids when a = 0.
Differs from the paper: the authors' script takes ids for positions in the second half, and so leaves nobody out there;
here both halves lose the same share.
Reference: Cho, Wang, Joshi (Power-of-Choice), code. AISTATS 2022. arXiv:2010.01243.
"""

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import View
from turnout.settings import ShareBelowOne, rule


def half(everyone: Ids, num_clients: int, round: int) -> Ids:
    """Return those of the half whose turn it is; the first half begins."""
    is_first = everyone < num_clients // 2
    return everyone[is_first if round % 2 == 1 else ~is_first]


def without_drawn(members: Ids, lots: Floats, count: int) -> Ids:
    """Return the members without the `count` whose lots are lowest; a lot belongs to a place, not to an id."""
    places = np.argsort(lots, kind="stable")[:count]
    return np.delete(members, places)


@rule("fleet.availability")
class HalfAndHalf:
    """Two halves in turn."""

    absent: ShareBelowOne = 0.2  # a: the share of the half that is away

    def up(self, view: View) -> Ids:
        """Return the half whose turn it is, without those that are away."""
        members = half(view.population.everyone, view.population.num_clients, view.round)
        lots = view.streams.uniforms("availability", view.round, members)[:, 0]
        return without_drawn(members, lots, int(self.absent * len(members)))
