"""SyntheticIid: SYNTHETIC data with one input distribution and one labelling model for all clients.

Intuition: the control experiment; clients differ only in size and by chance.

    n_k = ⌊LogNormal(4, 2)⌋ + 50,   v_k = 0,   one W ~ N(0, 1) ∈ R⁶⁰ˣ¹⁰ and b ~ N(0, 1) ∈ R¹⁰ for all
    x ~ N(0, Σ),   Σ = diag(j^−1.2),   y = argmax softmax(xW + b)

This is the IID case; SYNTHETIC(0, 0) is not. legacy_seed has the meaning that it has in Synthetic.
Reference: Li et al. FedProx. MLSys 2020. arXiv:1812.06127.
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from turnout.array_types import Ids
from turnout.data.federation import Federation
from turnout.data.synthetic import (
    CLASSES,
    DIM,
    MEAN_SIZE,
    Client,
    LegacySeed,
    check_room,
    federated,
    labelled,
    legacy_generator,
    lognormal_sizes,
)
from turnout.settings import Clients, Count, ShareBelowOne, rule
from turnout.streams import Streams
from turnout.traits import SampleForm


def iid_clients(rng: np.random.RandomState, sizes: Ids) -> Iterator[Client]:
    """Yield the clients in order; the order of draws is that of the authors' script."""
    weight = rng.normal(0, 1, (DIM, CLASSES))
    bias = rng.normal(0, 1, CLASSES)
    for size in sizes:
        yield labelled(rng, int(size), weight, bias, np.zeros(DIM))


@rule("data")
class SyntheticIid:
    """The IID variant of SYNTHETIC: 60 inputs, 10 classes."""

    clients: Clients = 30  # number of clients N, 1 or more; 30 is usual
    # number of samples n_k of every client, hold-out included, 1 or more; none draws log-normal sizes (usual)
    samples: Count | None = None
    holdout: ShareBelowOne = 0.1  # fraction of each client's samples in its own test set, 0 to below 1; 0.1 is usual
    # seed s of the authors' script, 0 to 2³² − 1, to repeat its draws; none draws from the run's seed (usual)
    legacy_seed: LegacySeed | None = None

    sample_form: ClassVar[SampleForm] = SampleForm(shape=(DIM,), outputs=CLASSES)

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        check_room("SyntheticIid", self.clients, MEAN_SIZE if self.samples is None else self.samples)
        rng = legacy_generator(self.legacy_seed, streams)
        sizes = lognormal_sizes(rng, self.clients)
        if self.samples is not None:
            sizes = np.full(self.clients, self.samples, dtype=np.int64)
        return federated("synthetic-iid", iid_clients(rng, sizes), sizes, self.holdout, streams)
