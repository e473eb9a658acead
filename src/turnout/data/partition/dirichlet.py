"""Dirichlet: split every class over the clients in random proportions.

Intuition: the smaller the concentration, the fewer clients share a class.

    for each class c:   q_c ~ Dir(α·1_N)
                        q_ci ← 0 where client i already holds n/N samples or more;  q_c ← q_c / Σ_i q_ci
                        client i takes ⌊q_ci·n_c⌋ samples of c (cumulative shares are floored: nothing is lost)
    all of it again until min_i n_i ≥ min_size

Left out: nothing.
Reduces to: nearly Iid as α → ∞.
Differs from the paper: the number of draws is bounded. When none of them gives every client min_size samples, the
rule says so, or, with top_up, moves samples from the largest clients (out of their largest class) to those in need.
If every client with mass in a class is full, the class goes evenly to those that are not.
Reference: Yurochkin et al. ICML 2019. arXiv:1905.12022; as in Wang et al. NeurIPS 2020. arXiv:2007.07481.
"""

import heapq
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.splitting import by_label, check_enough, counts_of, deal
from turnout.errors import DataError
from turnout.settings import GIVEN, Count, CountOrZero, Positive, When, rule


def class_counts(totals: Ids, num_clients: int, concentration: float, rng: np.random.Generator) -> Ids:
    """Return one draw of a (classes, clients) table of counts; row c sums to totals[c]."""
    fair = totals.sum() / num_clients
    held = np.zeros(num_clients, dtype=np.int64)
    rows = []
    for total in totals:
        open_ = held < fair
        shares = rng.dirichlet(np.full(num_clients, concentration)) * open_
        shares = shares / shares.sum() if shares.sum() > 0 else open_ / open_.sum()
        rows.append(counts_of(shares, int(total)))
        held += rows[-1]
    return np.stack(rows)


def topped_up(counts: Ids, min_size: int) -> Ids:
    """Return the table after moving samples, one by one, from the largest clients to those below min_size."""
    counts = counts.copy()
    sizes = counts.sum(axis=0)
    largest = [(-int(size), client) for client, size in enumerate(sizes)]
    heapq.heapify(largest)
    for client in np.flatnonzero(sizes < min_size):
        while counts[:, client].sum() < min_size:
            size, donor = heapq.heappop(largest)
            label = int(counts[:, donor].argmax())
            counts[label, donor] -= 1
            counts[label, client] += 1
            heapq.heappush(largest, (size + 1, donor))
    return counts


@rule("data.partition")
class Dirichlet:
    """Class by class, in random proportions."""

    concentration: Positive = 0.5  # α > 0: how alike clients are; 0.1 is far apart, 100 nearly the same
    min_size: CountOrZero = 10  # samples that each client has at least
    tries: Annotated[Count, When(min_size=GIVEN)] = 200  # draws before giving up
    top_up: Annotated[bool, When(min_size=GIVEN)] = False  # after that, fill small clients from large ones

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("Dirichlet", len(labels), num_clients, each=max(self.min_size, 1))
        piles = by_label(labels, rng)
        totals = np.array([len(pile) for pile in piles], dtype=np.int64)
        best, best_size = np.zeros((len(piles), num_clients), dtype=np.int64), -1
        for _ in range(self.tries):
            counts = class_counts(totals, num_clients, self.concentration, rng)
            smallest = int(counts.sum(axis=0).min())
            if smallest >= self.min_size:
                return deal(piles, counts)
            if smallest > best_size:
                best, best_size = counts, smallest
        if self.top_up:
            return deal(piles, topped_up(best, self.min_size))
        raise DataError(
            f"Dirichlet needs {self.min_size} samples for every client (min_size); the best of {self.tries} draws of "
            f"{len(labels)} samples over {num_clients} clients at concentration {self.concentration} left one with "
            f"{best_size}. Set partition.top_up = true, lower min_size, raise concentration, or use fewer clients."
        )
