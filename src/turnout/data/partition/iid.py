"""Iid: shuffle all samples and split them equally.

Intuition: all clients have the same distribution and differ only by chance.

    n_i = ⌊n/N⌋ or ⌈n/N⌉,   or `sizes`

Left out: nothing; with `sizes` that sum to less than n, the rest.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629.
"""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.splitting import check_enough, cut, even_sizes
from turnout.errors import ConfigError, DataError
from turnout.settings import Count, rule


@rule("data.partition")
class Iid:
    """The same distribution for all clients."""

    # number of samples n_i of each client, 1 or more; none is equal sizes (usual)
    sizes: tuple[Count, ...] | None = None

    def __post_init__(self) -> None:
        if self.sizes == ():
            raise ConfigError(
                "Iid needs one size per client; got none. Change data.partition.sizes, or leave it out.",
                setting="data.partition.sizes",
            )

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("Iid", len(labels), num_clients)
        sizes = even_sizes(len(labels), num_clients) if self.sizes is None else np.array(self.sizes, dtype=np.int64)
        if len(sizes) != num_clients:
            raise ConfigError(
                f"Iid needs one size per client; got {len(sizes)} sizes for {num_clients} clients. "
                f"Set data.clients to {len(sizes)}, or list {num_clients} sizes.",
                setting="data.clients",
            )
        if sizes.sum() > len(labels):
            raise DataError(
                f"Iid needs {sizes.sum()} samples for partition.sizes; got {len(labels)}. Lower partition.sizes."
            )
        return cut(rng.permutation(len(labels)), sizes)
