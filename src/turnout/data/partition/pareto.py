"""Pareto: the same distribution for all clients, but a few clients have most of the samples.

Intuition: most devices produce little data, and a few produce a lot.

    w_i = min( 1 + Pareto(index), cap · median(w) )
    n_i = max( min_size, s·w_i ),   s such that Σ n_i = n

Left out: nothing.
Reduces to: Iid as index → ∞ (every weight is one).
Differs from the paper: sizes have a maximum and a minimum. With index 0.5 the mean is infinite, and without a maximum
one client of a hundred often has 90 % of the samples.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.data.partition.splitting import check_enough, counts_of, cut
from turnout.settings import Count, Positive, Range, rule


def pareto_weights(num_clients: int, rng: np.random.Generator, *, index: float = 0.5, cap: float = 20.0) -> Floats:
    """Return Type-I Pareto weights w_i, from 1 to `cap` times their median."""
    weights = 1.0 + rng.pareto(index, num_clients)
    return np.minimum(weights, cap * np.median(weights))


def level(weights: Floats, total: int, min_size: int) -> float:
    """Return the scale s with Σ_i max(min_size, s·w_i) = total, for a total of at least min_size per client."""
    descending = np.sort(weights)[::-1]
    above = np.arange(1, len(descending) + 1)  # number of clients above min_size
    scales = (total - (len(descending) - above) * min_size) / np.cumsum(descending)
    valid = np.flatnonzero(scales * descending >= min_size)
    return float(scales[valid[-1]]) if len(valid) else min_size / float(descending[0])


def pareto_sizes(
    num_clients: int,
    total: int,
    rng: np.random.Generator,
    *,
    index: float = 0.5,
    min_size: int = 10,
    cap: float = 20.0,
) -> Ids:
    """Return sizes that sum to total, from min_size to `cap` times their median, to within one."""
    check_enough("Pareto", total, num_clients, each=max(min_size, 1))
    weights = pareto_weights(num_clients, rng, index=index, cap=cap)
    extra = np.maximum(level(weights, total, min_size) * weights - min_size, 0.0)
    spare = total - num_clients * min_size
    shares = extra / extra.sum() if extra.sum() > 0 else np.full(num_clients, 1.0 / num_clients)
    return min_size + counts_of(shares, spare)


@rule("data.partition")
class Pareto:
    """Heavy-tailed sizes."""

    index: Positive = 0.5  # tail index of the Pareto distribution, above 0; smaller is more unequal, 0.5 is usual
    min_size: Count = 10  # smallest number of samples of a client, 1 or more; 10 is usual
    # largest weight of a client, as a multiple of the median weight, 1 or more; 20 is usual
    cap: Annotated[float, Range(least=1)] = 20.0

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        sizes = pareto_sizes(num_clients, len(labels), rng, index=self.index, min_size=self.min_size, cap=self.cap)
        return cut(rng.permutation(len(labels)), sizes)
