"""OneLabel: every client holds samples of a single label, drawn at random.

Intuition: the hardest case; whoever is away takes a whole class away.

    c_i uniform over the labels
    no sizes:  the samples of a label are shared equally by the clients that drew it
    sizes:     n_i = max(min_size, s·w_i) with Pareto weights w_i, s as large as the samples of every label allow

Left out: labels that nobody drew; with sizes, also what exceeds s·w_i in labels with less demand.
Differs from the paper: it does not say how sizes meet the samples a label has; here one scale s serves all clients,
so the shape of the sizes is kept.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.pareto import Pareto, level, pareto_weights
from turnout.data.partition.splitting import by_label, check_enough, deal, even_sizes
from turnout.errors import DataError
from turnout.settings import rule


@rule("data.partition")
class OneLabel:
    """One label each."""

    sizes: Pareto | None = None  # how many samples; left out, equal shares of the label

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("OneLabel", len(labels), num_clients)
        piles = by_label(labels, rng)
        drawn = rng.integers(len(piles), size=num_clients)
        groups = [np.flatnonzero(drawn == label) for label in range(len(piles))]
        _check_room(piles, groups, 1 if self.sizes is None else self.sizes.min_size)
        counts = np.zeros((len(piles), num_clients), dtype=np.int64)
        if self.sizes is None:
            for label, group in enumerate(groups):
                if len(group):
                    counts[label, group] = even_sizes(len(piles[label]), len(group))
            return deal(piles, counts)
        weights = pareto_weights(num_clients, rng, index=self.sizes.index, cap=self.sizes.cap)
        least = self.sizes.min_size
        scale = min(level(weights[g], len(p), least) for g, p in zip(groups, piles, strict=True) if len(g))
        counts[drawn, np.arange(num_clients)] = np.maximum(np.floor(scale * weights + 1e-9), least)
        return deal(piles, counts)


def _check_room(piles: list[Ids], groups: list[Ids], each: int) -> None:
    for pile, group in zip(piles, groups, strict=True):
        if len(pile) < each * len(group):
            raise DataError(
                f"OneLabel needs {each} samples for each of the {len(group)} clients that drew one label; it has "
                f"{len(pile)}. Use fewer clients{', or lower partition.sizes.min_size' if each > 1 else ''}."
            )
