"""DirichletClient: every client draws its own mixture of classes.

Intuition: clients have tastes; equal sizes keep taste apart from amount.

    q_i ~ Dir(α·1_C) for every client
    balanced:    again and again, a random client that holds fewer than ⌊n/N⌋ draws a class from q_i, over the classes
                 that still have samples, and takes one sample of it
    unbalanced:  client i takes a share q_ic / Σ_j q_jc of class c

Left out: n − N·⌊n/N⌋ samples when balanced; nothing otherwise.
Reduces to: nearly Iid as α → ∞.
Differs from the paper: a client whose classes are all used up draws evenly from those that are not; the loop it
comes from would never end. Redrawing until a class has samples is done in one draw over those that have.
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.data.partition.splitting import by_label, check_enough, counts_of, deal
from turnout.settings import Positive, rule


def equal_counts(tastes: Floats, totals: Ids, rng: np.random.Generator) -> Ids:
    """Return a (classes, clients) table in which every client holds ⌊n/N⌋ samples; tastes are (clients, classes)."""
    num_clients, num_classes = tastes.shape
    size = int(totals.sum()) // num_clients
    left = totals.tolist()
    room = [size] * num_clients
    waiting = list(range(num_clients))
    counts = [[0] * num_clients for _ in range(num_classes)]
    ladders = _ladders(tastes, totals > 0)
    who, which = rng.random((2, size * num_clients)).tolist()
    for pick, u in zip(who, which, strict=True):
        place = int(pick * len(waiting))
        client = waiting[place]
        label = bisect_right(ladders[client], u)
        counts[label][client] += 1
        left[label] -= 1
        room[client] -= 1
        if room[client] == 0:
            waiting[place] = waiting[-1]
            waiting.pop()
        if left[label] == 0:
            ladders = _ladders(tastes, np.array(left) > 0)
    return np.array(counts, dtype=np.int64)


def _ladders(tastes: Floats, nonempty: NDArray[np.bool_]) -> list[list[float]]:
    """Return each client's cumulative chances over the classes that have samples; the top rung is above every u."""
    if not nonempty.any():
        return []
    chances = tastes * nonempty
    mass = chances.sum(axis=1, keepdims=True)
    chances = np.where(mass > 0, chances, nonempty.astype(np.float64))
    ladders = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
    ladders[:, int(np.flatnonzero(nonempty)[-1]) :] = 2.0  # rounding must not reach past the last class
    rungs: list[list[float]] = ladders.tolist()
    return rungs


@rule("data.partition")
class DirichletClient:
    """Client by client, each with its own mixture."""

    concentration: Positive = 0.5  # α > 0: how alike clients are; 0.1 is far apart, 100 nearly the same
    balanced: bool = True  # everyone holds ⌊n/N⌋; or what falls to them

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("DirichletClient", len(labels), num_clients)
        piles = by_label(labels, rng)
        totals = np.array([len(pile) for pile in piles], dtype=np.int64)
        tastes = rng.dirichlet(np.full(len(piles), self.concentration), size=num_clients)
        if self.balanced:
            return deal(piles, equal_counts(tastes, totals, rng))
        columns = tastes.T + np.finfo(np.float64).tiny  # a class nobody likes goes to everyone
        shares = columns / columns.sum(axis=1, keepdims=True)
        return deal(piles, np.stack([counts_of(row, int(total)) for row, total in zip(shares, totals, strict=True)]))
