"""A filter by data size: clients with too few or too many samples are not selected.

Intuition: an update from three samples costs as many bytes as one from three thousand.

    keep i ∈ A_t with least ≤ n_i ≤ most

Reduces to: no filter when least = 1.
Reference: none needed.
"""

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.protocols import Ask, Kept, View
from turnout.settings import Count, rule


@rule("filtering")
class DataSize:
    """Keep clients whose number of samples is within bounds."""

    least: Count = 1  # smallest number of samples n_i of a client, 1 or more; 1 keeps every client
    most: Count | None = None  # largest number of samples n_i of a client, `least` or more; none is no limit

    def __post_init__(self) -> None:
        if self.most is not None and self.most < self.least:
            raise ConfigError(
                f"DataSize needs least <= most; got {self.least} and {self.most}. Change filtering.least or most.",
                setting="filtering.least",
            )

    def keep(self, pool: Ids, view: View, ask: Ask) -> Kept:
        """Return the clients of the pool whose number of samples is within the bounds."""
        sizes = view.population.sizes[pool]
        clients = pool[(sizes >= self.least) & (sizes <= (np.inf if self.most is None else self.most))]
        return Kept(clients=clients, metrics={"filter_kept": float(len(clients))})
