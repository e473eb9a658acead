"""Weighted selection: clients are sampled in proportion to their share of the data.

Intuition: a client with twice the data is selected twice as often, so all updates can have the same weight.

    with replacement     K independent draws with probability p_i / Σ_{A_t} p,   π_i = K p_i / Σ_{A_t} p
    without replacement  successive draws in proportion to p_i (π_i has no closed form and is not reported)

Reduces to: uniform selection when every client has the same amount of data.
Differs from the paper: without replacement the average is biased for unequal p_i, under every weighting.
Reference: Cho, Wang, Joshi. AISTATS 2022. arXiv:2010.01243 (their π_rand).
"""

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import Ask, Choice, View
from turnout.settings import Clients, rule


@rule("selection")
class Weighted:
    """K clients sampled in proportion to p_i."""

    cohort_size: Clients  # cohort size K, 1 or more; 10 to 100 is usual
    replacement: bool = True  # sample with replacement, so that a client may be drawn twice; true is unbiased

    @property
    def knows_inclusion_prob(self) -> bool:
        """Whether π_i has a closed form."""
        return self.replacement

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return K draws from the pool; without replacement, the whole pool if it is smaller."""
        if len(pool) == 0:
            return Choice(clients=pool, multiplicity=pool)
        share = view.weights[pool] / view.weights[pool].sum()
        rng = view.streams.generator("selection", view.round)
        if self.replacement:
            places, counts = np.unique(rng.choice(len(pool), self.cohort_size, p=share), return_counts=True)
            prob = self.cohort_size * share[places]
            return Choice(clients=pool[places], multiplicity=counts.astype(np.int64), inclusion_prob=prob)
        size = min(self.cohort_size, len(pool))
        places = np.sort(rng.choice(len(pool), size, replace=False, p=share))
        inclusion_prob = np.ones(size) if size == len(pool) else None
        return Choice(clients=pool[places], multiplicity=np.ones(size, dtype=np.int64), inclusion_prob=inclusion_prob)
