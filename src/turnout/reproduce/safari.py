"""What the studies of SAFARI share: their partition by label, and the labels that selected clients hold."""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.data.partition.splitting import assign, by_label, check_enough, even_sizes
from turnout.errors import ConfigError
from turnout.journal.load import Loaded
from turnout.settings import Count, rule


@rule("data.partition")
class EvenLabels:
    """p labels each, and each label at equally many clients: client i holds π(i), …, π(i + p − 1), π a random order.

    The paper partitions "evenly in a label-based partition". KLabels gives each client p labels, but a label a random
    number of clients; here a label has N·p/C clients, which share its samples equally. p = C is IID; p = 1 with N = C
    is one label per client.
    """

    labels_per_client: Count  # number of labels per client p, 1 to the number of classes

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        check_enough("EvenLabels", len(labels), num_clients)
        by_class = by_label(labels, rng)
        if not 1 <= self.labels_per_client <= len(by_class) or num_clients % len(by_class):
            raise ConfigError(
                f"EvenLabels needs 1 <= labels_per_client <= {len(by_class)}, the number of labels, and a multiple of "
                f"it as clients; got {self.labels_per_client} and {num_clients}. Change partition.labels_per_client or "
                "data.clients."
            )
        order, clients = rng.permutation(len(by_class)), np.arange(num_clients)
        counts = np.zeros((len(by_class), num_clients), dtype=np.int64)
        for step in range(self.labels_per_client):
            counts[order[(clients + step) % len(by_class)], clients] = 1
        for label, positions in enumerate(by_class):
            owners = rng.permutation(np.flatnonzero(counts[label]))
            counts[label, owners] = even_sizes(len(positions), len(owners))
        return assign(by_class, counts)


def covered_share(loaded: Loaded, arm: str, counts: Floats) -> Floats:
    """Return, for each seed, the share of the test set with a label of some client that was selected at least once.

    Args:
        loaded: a study with label counts.
        arm: an arm of the study.
        counts: samples of each label in the test set.
    """
    frame = loaded.clients[loaded.clients["arm"] == arm]
    shares = []
    for seed in sorted(set(frame["seed"])):
        facts = loaded.holdings(arm, seed)
        assert facts is not None
        assert facts.label_counts is not None
        selected = frame[frame["seed"] == seed]["client"].unique()
        known = np.asarray(facts.label_counts)[selected].sum(axis=0) > 0
        shares.append(float(counts[known].sum() / counts.sum()))
    return np.array(shares)
