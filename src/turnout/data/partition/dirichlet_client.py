"""DirichletClient: every client draws its own distribution of classes.

Intuition: clients differ in their class proportions; with balanced = true, they do not differ in size.

    q_i ~ Dir(α·1_C) for every client
    balanced:    repeat: a random client i with fewer than ⌊n/N⌋ samples draws a class from q_i, among the classes with
                 samples left, and gets one sample of it
    unbalanced:  client i gets the fraction q_ic / Σ_j q_jc of class c

Left out: n − N·⌊n/N⌋ samples when balanced; nothing otherwise.
Reduces to: nearly Iid as α → ∞.
Differs from the paper: a client whose classes have no samples left draws uniformly from the other classes; the original
loop would not end. One draw among the classes with samples left replaces repeated draws from all classes.
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.data.partition.splitting import assign, by_label, check_enough, counts_of
from turnout.settings import Positive, rule


def equal_counts(mixtures: Floats, totals: Ids, rng: np.random.Generator) -> Ids:
    """Return a (classes, clients) table of counts in which every client has ⌊n/N⌋ samples.

    Args:
        mixtures: (clients, classes) table of each client's class proportions q_i.
        totals: number of samples n_c of each class.
        rng: generator of the draws.
    """
    num_clients, num_classes = mixtures.shape
    size = int(totals.sum()) // num_clients
    left = totals.tolist()
    room = [size] * num_clients
    unfilled = list(range(num_clients))
    counts = [[0] * num_clients for _ in range(num_classes)]
    cumulative = _cumulative(mixtures, totals > 0)
    who, which = rng.random((2, size * num_clients)).tolist()
    for pick, u in zip(who, which, strict=True):
        place = int(pick * len(unfilled))
        client = unfilled[place]
        label = bisect_right(cumulative[client], u)
        counts[label][client] += 1
        left[label] -= 1
        room[client] -= 1
        if room[client] == 0:
            unfilled[place] = unfilled[-1]
            unfilled.pop()
        if left[label] == 0:
            cumulative = _cumulative(mixtures, np.array(left) > 0)
    return np.array(counts, dtype=np.int64)


def _cumulative(mixtures: Floats, nonempty: NDArray[np.bool_]) -> list[list[float]]:
    """Return each client's cumulative probabilities over the classes with samples left; the last exceeds every u."""
    if not nonempty.any():
        return []
    probs = mixtures * nonempty
    mass = probs.sum(axis=1, keepdims=True)
    probs = np.where(mass > 0, probs, nonempty.astype(np.float64))
    cumulative = np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)
    cumulative[:, int(np.flatnonzero(nonempty)[-1]) :] = 2.0  # rounding must not select a class after the last
    rows: list[list[float]] = cumulative.tolist()
    return rows


@rule("data.partition")
class DirichletClient:
    """A distribution of classes for each client."""

    # concentration α of the Dirichlet, above 0; 0.1 is very heterogeneous, 100 nearly IID
    concentration: Positive = 0.5
    balanced: bool = True  # whether every client has ⌊n/N⌋ samples (usual); false leaves the sizes random

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("DirichletClient", len(labels), num_clients)
        by_class = by_label(labels, rng)
        totals = np.array([len(positions) for positions in by_class], dtype=np.int64)
        mixtures = rng.dirichlet(np.full(len(by_class), self.concentration), size=num_clients)
        if self.balanced:
            return assign(by_class, equal_counts(mixtures, totals, rng))
        columns = mixtures.T + np.finfo(np.float64).tiny  # all clients share a class in which all proportions are 0
        shares = columns / columns.sum(axis=1, keepdims=True)
        return assign(
            by_class, np.stack([counts_of(row, int(total)) for row, total in zip(shares, totals, strict=True)])
        )
