"""A filter by data size: clients with too few samples are not asked.

Intuition: an answer from three samples costs as many bytes as one from three thousand.

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
    """Keep clients that hold enough, and not too much."""

    least: Count = 1  # samples
    most: Count | None = None  # samples; none: no limit

    def __post_init__(self) -> None:
        if self.most is not None and self.most < self.least:
            raise ConfigError(
                f"DataSize needs least <= most; got {self.least} and {self.most}. Change filtering.least or most."
            )

    def keep(self, pool: Ids, view: View, ask: Ask) -> Kept:
        """Return the clients of the pool whose size is within the bounds."""
        sizes = view.population.sizes[pool]
        kept = pool[(sizes >= self.least) & (sizes <= (np.inf if self.most is None else self.most))]
        return Kept(clients=kept, metrics={"filter_kept": float(len(kept))})
