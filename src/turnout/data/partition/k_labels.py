"""KLabels: every client has k labels; the clients that have a label share its samples equally.

Intuition: the fewer labels a client has, the more its update differs from those of others.

    client i has label i mod C and k − 1 other random labels;  n_ic = n_c / |clients with label c|, to within one

Left out: the samples of labels that no client has (possible if N < C).
Reduces to: every label at every client when k = C; one label per client when k = 1 and N = C.
Reference: Li, Diao, Chen, He. ICDE 2022. arXiv:2102.02079 ("#label").
"""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.splitting import assign, by_label, check_enough, even_sizes
from turnout.errors import ConfigError
from turnout.settings import Count, rule


def owners(num_clients: int, num_classes: int, labels_per_client: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a (classes, clients) table of bools: whether the client has the class."""
    clients = np.arange(num_clients)
    priority = rng.random((num_clients, num_classes))
    priority[clients, clients % num_classes] = -1.0  # label i mod C always comes first
    chosen = np.argsort(priority, axis=1)[:, :labels_per_client]
    table = np.zeros((num_classes, num_clients), dtype=bool)
    table[chosen.T, clients] = True
    return table


@rule("data.partition")
class KLabels:
    """k labels per client."""

    labels_per_client: Count  # number of labels k of each client, 1 to the number of classes; 1 to 3 is usual

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("KLabels", len(labels), num_clients)
        by_class = by_label(labels, rng)
        if self.labels_per_client > len(by_class):
            raise ConfigError(
                f"KLabels needs labels_per_client <= {len(by_class)}, the number of labels; "
                f"got {self.labels_per_client}. Change partition.labels_per_client."
            )
        table = owners(num_clients, len(by_class), self.labels_per_client, rng)
        counts = np.zeros(table.shape, dtype=np.int64)
        for label, positions in enumerate(by_class):
            if table[label].any():
                counts[label, rng.permutation(np.flatnonzero(table[label]))] = even_sizes(
                    len(positions), int(table[label].sum())
                )
        return assign(by_class, counts)
