"""Weighted selection: clients are drawn in proportion to their share of the data.

Intuition: a client with twice the data is asked twice as often, so answers can then count alike.

    with replacement     K independent draws with probability p_i / Σ_{A_t} p,   π_i = K p_i / Σ_{A_t} p
    without replacement  successive draws in proportion to p_i (π_i has no closed form and is not reported)

Reduces to: uniform selection when every client holds the same amount.
Differs from the paper: without replacement the average is not unbiased for unequal p, whatever the weights say.
Reference: Cho, Wang, Joshi. AISTATS 2022. arXiv:2010.01243 (their π_rand).
"""

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import Ask, Choice, View
from turnout.settings import Clients, rule


@rule("selection")
class Weighted:
    """K clients drawn in proportion to p_i."""

    cohort_size: Clients  # K
    replacement: bool = True  # draws are independent: a client may be drawn twice

    @property
    def knows_inclusion_prob(self) -> bool:
        """Whether π_i has a closed form."""
        return self.replacement

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return K draws from the pool; without replacement, all of it when it has fewer."""
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
        prob_known = np.ones(size) if size == len(pool) else None
        return Choice(clients=pool[places], multiplicity=np.ones(size, dtype=np.int64), inclusion_prob=prob_known)
