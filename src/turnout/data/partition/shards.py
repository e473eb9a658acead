"""Shards: sort the samples by label, cut them into equal shards, and give each client a few random shards.

Intuition: with two shards a client has about two classes.

    shards of ⌊n/S⌋ or ⌈n/S⌉ samples, S = num_shards or N·per_client;  client i gets per_client random ones

Left out: the S − N·per_client shards that no client gets; nothing if num_shards is left out.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629 (200 shards of 300 digits, two for each of 100 clients).
"""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.data.partition.splitting import by_label, check_enough, cut, even_sizes
from turnout.errors import ConfigError
from turnout.settings import Count, rule


@rule("data.partition")
class Shards:
    """A few label-sorted shards per client."""

    per_client: Count = 2  # number of shards of each client, 1 or more; 2 is usual
    # number of shards S, clients x per_client or more; none is clients x per_client, which uses all samples (usual)
    num_shards: Count | None = None

    def split(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[Ids]:
        """Return the positions of each client's samples."""
        needed = num_clients * self.per_client
        num_shards = needed if self.num_shards is None else self.num_shards
        if num_shards < needed:
            raise ConfigError(
                f"Shards needs num_shards >= clients x per_client; got {num_shards} < {needed}. "
                f"Set partition.num_shards to {needed} or more, or leave it out."
            )
        check_enough("Shards", len(labels), num_clients)
        if num_shards > len(labels):
            raise ConfigError(
                f"Shards needs at least one sample per shard; got {num_shards} shards for {len(labels)} samples. "
                "Lower partition.num_shards, partition.per_client or data.clients."
            )
        shards = cut(np.concatenate(by_label(labels, rng)), even_sizes(len(labels), num_shards))
        chosen = rng.permutation(num_shards)[:needed].reshape(num_clients, self.per_client)
        return [np.concatenate([shards[shard] for shard in row]) for row in chosen]
