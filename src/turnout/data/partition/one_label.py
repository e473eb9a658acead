"""OneLabel: every client has samples of a single random label.

Intuition: the most heterogeneous case; an absent client can take a whole class with it.

    c_i uniform over the labels
    no sizes:  the clients that drew a label share its samples equally
    sizes:     n_i = max(min_size, s·w_i) with Pareto weights w_i, and the largest s that every label has samples for

Left out: labels that no client drew; with sizes, also the samples of a label beyond the sizes of its clients.
Differs from the paper: the paper does not say how sizes and the samples of a label go together. Here one scale s for
all clients preserves the distribution of sizes.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.pareto import Pareto, level, pareto_weights
from turnout.data.partition.splitting import assign, by_label, check_enough, even_sizes
from turnout.errors import DataError
from turnout.settings import rule


@rule("data.partition")
class OneLabel:
    """One label per client."""

    sizes: Pareto | None = None  # Pareto distribution of the sizes n_i; none splits each label equally (usual)

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("OneLabel", len(labels), num_clients)
        by_class = by_label(labels, rng)
        drawn = rng.integers(len(by_class), size=num_clients)
        groups = [np.flatnonzero(drawn == label) for label in range(len(by_class))]
        _check_room(by_class, groups, 1 if self.sizes is None else self.sizes.min_size)
        counts = np.zeros((len(by_class), num_clients), dtype=np.int64)
        if self.sizes is None:
            for label, group in enumerate(groups):
                if len(group):
                    counts[label, group] = even_sizes(len(by_class[label]), len(group))
            return assign(by_class, counts)
        weights = pareto_weights(num_clients, rng, index=self.sizes.index, cap=self.sizes.cap)
        least = self.sizes.min_size
        scale = min(level(weights[g], len(p), least) for g, p in zip(groups, by_class, strict=True) if len(g))
        counts[drawn, np.arange(num_clients)] = np.maximum(np.floor(scale * weights + 1e-9), least)
        return assign(by_class, counts)


def _check_room(by_class: list[Ids], groups: list[Ids], each: int) -> None:
    for positions, group in zip(by_class, groups, strict=True):
        if len(positions) < each * len(group):
            raise DataError(
                f"OneLabel needs {each} samples for each of the {len(group)} clients that drew one label; the "
                f"label has {len(positions)}. Use fewer clients"
                f"{', or lower partition.sizes.min_size' if each > 1 else ''}."
            )
