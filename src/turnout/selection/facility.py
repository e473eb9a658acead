"""Facility location: which few points stand for all of them, given their distances.

    G(S) = Σ_i min_{j∈S} D_ij        const − G is monotone and submodular, so greedy gains ≥ (1 − 1/e) of the best

Pure functions of a matrix of distances; positions, not client ids.
"""

import heapq

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids

COLUMNS = 4096  # of the rows, converted to float64 at a time
SAME = 1e-12  # squared distances below this share of the squared norms are rounding, and count as zero
TIE = 1e-9  # gains that differ by less than this share are equal


def distances(left: Tensor, right: Tensor) -> Floats:
    """Return ‖a − b‖ for each row a of one matrix and b of the other, in float64.

    Equal rows are exactly 0 apart; a row that is not finite is NaN apart from everything, itself included.
    """
    products = torch.zeros(len(left), len(right), dtype=torch.float64)
    left_squares, right_squares = (torch.zeros(len(rows), dtype=torch.float64) for rows in (left, right))
    for at in range(0, left.shape[1], COLUMNS):
        a, b = (rows[:, at : at + COLUMNS].double() for rows in (left, right))
        centre = a.nan_to_num(0, 0, 0).mean(0)  # distances do not see a shift, and rounding is smaller near zero
        a, b = a - centre, b - centre
        products += (a @ b.T).cpu()
        left_squares += a.square().sum(1).cpu()
        right_squares += b.square().sum(1).cpu()
    scale = left_squares[:, None] + right_squares[None, :]
    squares = scale - 2 * products
    return np.asarray(torch.where(squares <= SAME * scale, 0.0, squares).sqrt().numpy())


def coverage(apart: Floats, chosen: Ids) -> float:
    """Return G(S), how far everyone is from the nearest of those chosen."""
    return float(apart[chosen].min(0).sum())


def gains(apart: Floats, nearest: Floats, at: Ids) -> Floats:
    """Return by how much each of these positions would lower G, given everyone's distance to the nearest chosen."""
    return np.asarray(np.maximum(nearest - apart[at], 0).sum(1))


def lowest_best(values: Floats) -> int:
    """Return the first place whose value is the largest, rounding apart: two clients near each other often tie."""
    return int(np.flatnonzero(values >= _nearly(values.max()))[0])


def _nearly(best: float) -> float:
    return best - TIE * abs(best)


def medoid(apart: Floats, among: Ids) -> int:
    """Return the position nearest to everyone together; ties go to the lowest."""
    return int(among[lowest_best(-apart[among].sum(1))])


def greedy(apart: Floats, size: int, offered: Ids | None = None, looked_at: int | None = None) -> Ids:
    """Return `size` positions, the medoid first and then whoever lowers G most, in the order of picking.

    Args:
        apart: the distances.
        size: how many are picked.
        offered: for the stochastic greedy, a column of all positions in random order for each pick.
        looked_at: how many of a column's positions that are still open a pick looks at.
    """
    is_open = np.ones(len(apart), dtype=bool)
    chosen: list[int] = []
    nearest = np.zeros(0)
    for pick in range(size):
        may = np.flatnonzero(is_open)
        if offered is not None:
            column = offered[:, pick]
            may = np.sort(column[is_open[column]][:looked_at])
        best = int(may[lowest_best(gains(apart, nearest, may))]) if chosen else medoid(apart, may)
        nearest = np.minimum(nearest, apart[best]) if chosen else apart[best]
        is_open[best] = False
        chosen.append(best)
    return np.asarray(chosen, dtype=np.int64)


def lazy_greedy(apart: Floats, size: int) -> Ids:
    """Return what `greedy` returns, recomputing a gain only when it may be the best: gains never grow."""
    everyone = np.arange(len(apart))
    chosen = [medoid(apart, everyone)]
    nearest = apart[chosen[0]]
    heap = [(-float(gain), int(at)) for at, gain in enumerate(gains(apart, nearest, everyone)) if at != chosen[0]]
    heapq.heapify(heap)
    while len(chosen) < size:
        fresh: list[tuple[float, int]] = []
        best = -np.inf
        while heap and -heap[0][0] >= _nearly(best):
            at = heapq.heappop(heap)[1]
            gain = float(gains(apart, nearest, np.array([at]))[0])
            best = max(best, gain)
            fresh.append((-gain, at))
        pick = min(at for loss, at in fresh if -loss >= _nearly(best))
        for entry in fresh:
            if entry[1] != pick:
                heapq.heappush(heap, entry)
        chosen.append(pick)
        nearest = np.minimum(nearest, apart[pick])
    return np.asarray(chosen, dtype=np.int64)


def represented(apart: Floats, chosen: Ids) -> Ids:
    """Return how many positions each chosen one stands for: itself, and those nearest to it (ties: the first)."""
    stands = np.argmin(apart[chosen], axis=0)
    stands[chosen] = np.arange(len(chosen))
    return np.bincount(stands, minlength=len(chosen)).astype(np.int64)
