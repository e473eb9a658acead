"""Pareto: the same mixture for everyone, but a few clients hold most of the samples.

Intuition: most devices are used little, a few all day.

    w_i = min( 1 + Pareto(index), cap · median(w) )
    n_i = max( min_size, s·w_i ),   s such that Σ n_i = n

Left out: nothing.
Reduces to: Iid as index → ∞ (every weight is one).
Differs from the paper: sizes are capped and have a minimum. With index 0.5 the mean is infinite, and without a cap
one client of a hundred often holds nine samples in ten.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.data.partition.splitting import check_enough, counts_of, cut
from turnout.settings import Count, Positive, Range, rule


def pareto_weights(num_clients: int, rng: np.random.Generator, *, index: float = 0.5, cap: float = 20.0) -> Floats:
    """Return Type-I Pareto weights of at least one, none above `cap` times the median."""
    weights = 1.0 + rng.pareto(index, num_clients)
    return np.minimum(weights, cap * np.median(weights))


def level(weights: Floats, total: int, min_size: int) -> float:
    """Return s with Σ max(min_size, s·w_i) = total; total is at least min_size for each."""
    falling = np.sort(weights)[::-1]
    above = np.arange(1, len(falling) + 1)  # how many hold more than the minimum
    scales = (total - (len(falling) - above) * min_size) / np.cumsum(falling)
    valid = np.flatnonzero(scales * falling >= min_size)
    return float(scales[valid[-1]]) if len(valid) else min_size / float(falling[0])


def pareto_sizes(
    num_clients: int,
    total: int,
    rng: np.random.Generator,
    *,
    index: float = 0.5,
    min_size: int = 10,
    cap: float = 20.0,
) -> Ids:
    """Return sizes that sum to total; none is below min_size or, to within one, above `cap` times the median."""
    check_enough("Pareto", total, num_clients, each=max(min_size, 1))
    weights = pareto_weights(num_clients, rng, index=index, cap=cap)
    extra = np.maximum(level(weights, total, min_size) * weights - min_size, 0.0)
    spare = total - num_clients * min_size
    shares = extra / extra.sum() if extra.sum() > 0 else np.full(num_clients, 1.0 / num_clients)
    return min_size + counts_of(shares, spare)


@rule("data.partition")
class Pareto:
    """Heavy-tailed sizes."""

    index: Positive = 0.5  # of the tail: the smaller, the more unequal
    min_size: Count = 10  # samples that each client has at least
    cap: Annotated[float, Range(least=1)] = 20.0  # times the median

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        sizes = pareto_sizes(num_clients, len(labels), rng, index=self.index, min_size=self.min_size, cap=self.cap)
        return cut(rng.permutation(len(labels)), sizes)
