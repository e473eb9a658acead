"""Uniform selection: every available client is equally likely to be selected.

Intuition: no client is special.

    without replacement  S = K distinct clients of A_t,   π_i = K / |A_t|
    with replacement     K independent draws from A_t,    π_i = K / |A_t| expected draws

Reduces to: full participation when cohort_size is left out.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629.
"""

from typing import Literal

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.protocols import Ask, Choice, View
from turnout.settings import Clients, rule


@rule("selection")
class Uniform:
    """K clients sampled uniformly from the available clients."""

    cohort_size: Clients | None = None  # cohort size K, 1 or more; none selects every available client
    replacement: bool = False  # sample with replacement, so that a client may be drawn twice; false is usual

    def __post_init__(self) -> None:
        if self.cohort_size is None and self.replacement:
            raise ConfigError(
                "Uniform with replacement needs a cohort_size; got none. Set selection.cohort_size.",
                setting="selection.cohort_size",
            )

    @property
    def data_independent(self) -> Literal["fixed"] | None:
        """How clients are drawn, whatever their data: a fixed number of different ones."""
        return None if self.replacement else "fixed"

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return K clients of the pool, or the whole pool if it is smaller."""
        size = self.cohort_size
        if len(pool) == 0 or size is None or (size >= len(pool) and not self.replacement):
            ones = np.ones(len(pool))
            return Choice(clients=pool, multiplicity=ones.astype(np.int64), inclusion_prob=ones)
        draws = view.streams.places("selection", view.round, len(pool), size, replacement=self.replacement)
        if self.replacement:
            positions, counts = np.unique(draws, return_counts=True)
        else:
            positions, counts = np.sort(draws), np.ones(size, dtype=np.int64)
        prob = np.full(len(positions), size / len(pool))
        return Choice(clients=pool[positions], multiplicity=counts.astype(np.int64, copy=False), inclusion_prob=prob)
