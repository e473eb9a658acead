"""Half and half: the first half of the clients is available in odd rounds, the second half in even rounds.

Intuition: two halves of the world are awake in turn, and some clients are missing each time.

    t = 1, 3, 5, …   H = clients 0 … ⌊N/2⌋−1
    t = 2, 4, 6, …   H = clients ⌊N/2⌋ … N−1
    A_t = H without ⌊a·|H|⌋ of its clients, sampled uniformly

Reduces to: two cyclic groups in the order of ids when a = 0.
Differs from the paper: the authors' script confuses ids with positions in the second half, so that no client is absent
there; here both halves have the same share of absent clients.
Reference: Cho, Wang, Joshi (Power-of-Choice), code. AISTATS 2022. arXiv:2010.01243.
"""

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import View
from turnout.settings import ShareBelowOne, rule


def half(everyone: Ids, num_clients: int, round: int) -> Ids:
    """Return the clients of the half that is available in this round; the first half begins."""
    is_first = everyone < num_clients // 2
    return everyone[is_first if round % 2 == 1 else ~is_first]


def without_drawn(members: Ids, lots: Floats, count: int) -> Ids:
    """Return the members without those with the `count` lowest random numbers; lots[k] belongs to members[k]."""
    positions = np.argsort(lots, kind="stable")[:count]
    return np.delete(members, positions)


@rule("fleet.availability")
class HalfAndHalf:
    """Two halves in turn."""

    absent: ShareBelowOne = 0.2  # share a of the half that is not available, 0 to below 1; 0 is the whole half

    def up(self, view: View) -> Ids:
        """Return the half of this round without the absent clients."""
        members = half(view.population.everyone, view.population.num_clients, view.round)
        lots = view.streams.uniforms("availability", view.round, members)[:, 0]
        return without_drawn(members, lots, int(self.absent * len(members)))
