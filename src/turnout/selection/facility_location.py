"""Facility location: choose a few points that represent all points, given their pairwise distances.

    G(S) = Σ_i min_{j∈S} D_ij        const − G is monotone and submodular, so greedy reaches ≥ (1 − 1/e) of the best

Pure functions of a distance matrix. They use positions in the matrix, not client ids.
"""

import heapq

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids

COLUMNS = 4096  # columns converted to float64 at a time
ZERO_TOLERANCE = 1e-12  # relative to the squared norms, a smaller squared distance is a rounding error and counts as 0
TIE_TOLERANCE = 1e-9  # gains with a smaller relative difference are equal


def distances(left: Tensor, right: Tensor) -> Floats:
    """Return ‖a − b‖ for each row a of one matrix and b of the other, in float64.

    The distance of equal rows is exactly 0. The distance of a non-finite row to every row, itself included, is NaN.
    """
    products = torch.zeros(len(left), len(right), dtype=torch.float64)
    left_squares, right_squares = (torch.zeros(len(rows), dtype=torch.float64) for rows in (left, right))
    for at in range(0, left.shape[1], COLUMNS):
        a, b = (rows[:, at : at + COLUMNS].double() for rows in (left, right))
        centre = a.nan_to_num(0, 0, 0).mean(0)  # a shift keeps all distances, and rounding errors are smaller near zero
        a, b = a - centre, b - centre
        products += (a @ b.T).cpu()
        left_squares += a.square().sum(1).cpu()
        right_squares += b.square().sum(1).cpu()
    scale = left_squares[:, None] + right_squares[None, :]
    squares = scale - 2 * products
    return np.asarray(torch.where(squares <= ZERO_TOLERANCE * scale, 0.0, squares).sqrt().numpy())


def gains(apart: Floats, nearest: Floats, at: Ids) -> Floats:
    """Return by how much each of these positions would lower G; `nearest` is each point's distance to the chosen."""
    return np.asarray(np.maximum(nearest - apart[at], 0).sum(1))


def lowest_best(values: Floats) -> int:
    """Return the first position whose value is the largest up to rounding; close clients often tie."""
    return int(np.flatnonzero(values >= _tie_bound(values.max()))[0])


def _tie_bound(best: float) -> float:
    """Return the smallest value that counts as equal to the best."""
    return best - TIE_TOLERANCE * abs(best)


def medoid(apart: Floats, among: Ids) -> int:
    """Return the position with the smallest sum of distances; ties go to the lowest."""
    return int(among[lowest_best(-apart[among].sum(1))])


def greedy(apart: Floats, size: int, orders: Ids | None = None, num_candidates: int | None = None) -> Ids:
    """Return `size` positions in the order of picking: the medoid first, then the position that lowers G most.

    Args:
        apart: the distance matrix.
        size: number of positions to pick.
        orders: for the stochastic greedy, one column per pick with all positions in random order.
        num_candidates: number of positions that a pick considers, the first in its column that are still free.
    """
    is_open = np.ones(len(apart), dtype=bool)
    chosen: list[int] = []
    nearest = np.zeros(0)
    for pick in range(size):
        options = np.flatnonzero(is_open)
        if orders is not None:
            column = orders[:, pick]
            options = np.sort(column[is_open[column]][:num_candidates])
        best = int(options[lowest_best(gains(apart, nearest, options))]) if chosen else medoid(apart, options)
        nearest = np.minimum(nearest, apart[best]) if chosen else apart[best]
        is_open[best] = False
        chosen.append(best)
    return np.asarray(chosen, dtype=np.int64)


def lazy_greedy(apart: Floats, size: int) -> Ids:
    """Return the result of `greedy`, recomputing a gain only if it may be the best; gains never increase."""
    everyone = np.arange(len(apart))
    chosen = [medoid(apart, everyone)]
    nearest = apart[chosen[0]]
    heap = [(-float(gain), int(at)) for at, gain in enumerate(gains(apart, nearest, everyone)) if at != chosen[0]]
    heapq.heapify(heap)
    while len(chosen) < size:
        recomputed: list[tuple[float, int]] = []
        best = -np.inf
        while heap and -heap[0][0] >= _tie_bound(best):
            at = heapq.heappop(heap)[1]
            gain = float(gains(apart, nearest, np.array([at]))[0])
            best = max(best, gain)
            recomputed.append((-gain, at))
        pick = min(at for loss, at in recomputed if -loss >= _tie_bound(best))
        for entry in recomputed:
            if entry[1] != pick:
                heapq.heappush(heap, entry)
        chosen.append(pick)
        nearest = np.minimum(nearest, apart[pick])
    return np.asarray(chosen, dtype=np.int64)


def representation_counts(apart: Floats, chosen: Ids) -> Ids:
    """Return how many positions each chosen one represents: itself, and those nearest to it (ties: the first)."""
    representative = np.argmin(apart[chosen], axis=0)
    representative[chosen] = np.arange(len(chosen))
    return np.bincount(representative, minlength=len(chosen)).astype(np.int64)
