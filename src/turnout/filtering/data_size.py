"""A filter by data size: clients with too few samples are not asked.

Intuition: an answer from three samples costs as many bytes as one from three thousand.

    keep i ∈ A_t with least ≤ n_i ≤ most

Reduces to: no filter when least = 1.
Reference: none needed.
"""

from dataclasses import dataclass

import numpy as np

from turnout.errors import ConfigError
from turnout.protocols import Ask, Kept, View
from turnout.streams import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSize:
    """Keep clients that hold enough, and not too much."""

    least: int = 1  # samples
    most: int | None = None  # samples; none: no limit

    def __post_init__(self) -> None:
        if self.least < 1 or (self.most is not None and self.most < self.least):
            raise ConfigError(
                f"DataSize needs 1 <= least <= most; got {self.least} and {self.most}. Change filtering.least or most."
            )

    def keep(self, pool: Ids, view: View, ask: Ask) -> Kept:
        """Return the clients of the pool whose size is within the bounds."""
        sizes = view.population.sizes[pool]
        kept = pool[(sizes >= self.least) & (sizes <= (np.inf if self.most is None else self.most))]
        return Kept(clients=kept, metrics={"filter_kept": float(len(kept))})
