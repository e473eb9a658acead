"""Poisson selection: every available client is selected with the same probability, independently.

Intuition: the cohort size is random, so that the selection of one client reveals nothing about another.

    i ∈ S  with probability q, independently;    π_i = q,   |S| ~ Binomial(|A_t|, q)

The cohort of a round may be empty. Privacy accounting has its tightest bounds for this sampling.

Reduces to: full participation when q = 1.
Reference: McMahan, Ramage, Talwar, Zhang. ICLR 2018. arXiv:1710.06963.
"""

from typing import ClassVar

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import Ask, Choice, View
from turnout.settings import PositiveShare, rule


@rule("selection")
class Poisson:
    """An independent draw for every available client."""

    data_independent: ClassVar[str] = "poisson"
    cohort_size: ClassVar[int | None] = None  # the cohort size is random
    prob: PositiveShare  # selection probability q of each available client, above 0 to 1; 0.01 to 0.1 is usual

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return the clients selected by their own draw."""
        selected = pool[view.streams.uniforms("selection", view.round, pool)[:, 0] < self.prob]
        ones = np.ones(len(selected), dtype=np.int64)
        return Choice(clients=selected, multiplicity=ones, inclusion_prob=np.full(len(selected), self.prob))
