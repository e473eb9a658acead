"""KLabels: every client owns k labels; a label's samples are shared equally by its owners.

Intuition: the fewer labels a client knows, the more its model must be told by others.

    client i owns label i mod C and k − 1 others drawn at random;  n_ic = n_c / |owners of c|, to within one

Left out: the samples of labels nobody owns (possible when N < C).
Reduces to: every label at every client when k = C; one label each when k = 1 and N = C.
Reference: Li, Diao, Chen, He. ICDE 2022. arXiv:2102.02079 ("#label").
"""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.splitting import by_label, check_enough, deal, even_sizes
from turnout.errors import ConfigError
from turnout.settings import Count, rule


def owners(num_clients: int, num_classes: int, labels_per_client: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a (classes, clients) table of who owns what."""
    clients = np.arange(num_clients)
    luck = rng.random((num_clients, num_classes))
    luck[clients, clients % num_classes] = -1.0  # its own label always comes first
    chosen = np.argsort(luck, axis=1)[:, :labels_per_client]
    table = np.zeros((num_classes, num_clients), dtype=bool)
    table[chosen.T, clients] = True
    return table


@rule("data.partition")
class KLabels:
    """k labels each."""

    labels_per_client: Count  # k

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("KLabels", len(labels), num_clients)
        piles = by_label(labels, rng)
        if self.labels_per_client > len(piles):
            raise ConfigError(
                f"KLabels needs labels_per_client <= {len(piles)}, the number of labels; "
                f"got {self.labels_per_client}. Change partition.labels_per_client."
            )
        table = owners(num_clients, len(piles), self.labels_per_client, rng)
        counts = np.zeros(table.shape, dtype=np.int64)
        for label, pile in enumerate(piles):
            if table[label].any():
                counts[label, rng.permutation(np.flatnonzero(table[label]))] = even_sizes(
                    len(pile), int(table[label].sum())
                )
        return deal(piles, counts)
