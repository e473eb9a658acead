"""Dirichlet: split every class over the clients in random proportions.

Intuition: the smaller the concentration, the fewer clients have samples of a class.

    for each class c:   q_c ~ Dir(α·1_N)
                        q_ci ← 0 where client i already holds n/N samples or more;  q_c ← q_c / Σ_i q_ci
                        client i gets ⌊q_ci·n_c⌋ samples of c (floors of cumulative proportions, so no sample is lost)
    repeat the whole draw until min_i n_i ≥ min_size

Left out: nothing.
Reduces to: nearly Iid as α → ∞.
Differs from the paper: the number of draws is bounded. If none of them gives every client min_size samples, the rule
raises an error; with top_up it instead moves samples from the largest clients, out of their largest class, to the small
ones. If every client with a positive proportion of a class is full, the other clients share the class equally.
Reference: Yurochkin et al. ICML 2019. arXiv:1905.12022; as in Wang et al. NeurIPS 2020. arXiv:2007.07481.
"""

import heapq
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.splitting import assign, by_label, check_enough, counts_of
from turnout.errors import DataError
from turnout.settings import GIVEN, Count, CountOrZero, Positive, When, rule


def class_counts(totals: Ids, num_clients: int, concentration: float, rng: np.random.Generator) -> Ids:
    """Return one draw of a (classes, clients) table of counts; row c sums to totals[c]."""
    mean_size = totals.sum() / num_clients
    sizes = np.zeros(num_clients, dtype=np.int64)
    rows = []
    for total in totals:
        has_room = sizes < mean_size
        shares = rng.dirichlet(np.full(num_clients, concentration)) * has_room
        shares = shares / shares.sum() if shares.sum() > 0 else has_room / has_room.sum()
        rows.append(counts_of(shares, int(total)))
        sizes += rows[-1]
    return np.stack(rows)


def topped_up(counts: Ids, min_size: int) -> Ids:
    """Return the table after samples move, one by one, from the largest clients to those below min_size."""
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
    """Random proportions of every class."""

    # concentration α of the Dirichlet, above 0; 0.1 is very heterogeneous, 100 nearly IID
    concentration: Positive = 0.5
    min_size: CountOrZero = 10  # smallest number of samples of a client, 0 or more; 10 is usual
    tries: Annotated[Count, When(min_size=GIVEN)] = 200  # largest number of draws to reach min_size, 1 or more
    # whether small clients get samples of large ones if no draw reaches min_size; false raises an error (usual)
    top_up: Annotated[bool, When(min_size=GIVEN)] = False

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("Dirichlet", len(labels), num_clients, each=max(self.min_size, 1))
        by_class = by_label(labels, rng)
        totals = np.array([len(positions) for positions in by_class], dtype=np.int64)
        best, best_size = np.zeros((len(by_class), num_clients), dtype=np.int64), -1
        for _ in range(self.tries):
            counts = class_counts(totals, num_clients, self.concentration, rng)
            smallest = int(counts.sum(axis=0).min())
            if smallest >= self.min_size:
                return assign(by_class, counts)
            if smallest > best_size:
                best, best_size = counts, smallest
        if self.top_up:
            return assign(by_class, topped_up(best, self.min_size))
        raise DataError(
            f"Dirichlet needs {self.min_size} samples for every client (min_size); the best of {self.tries} draws of "
            f"{len(labels)} samples over {num_clients} clients at concentration {self.concentration} left one with "
            f"{best_size}. Set partition.top_up = true, lower min_size, raise concentration, or use fewer clients."
        )
