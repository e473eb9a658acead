"""Poisson selection: everyone who is up is asked with the same probability, each by a coin of its own.

Intuition: how many are asked is left to chance, so that nobody's being asked says anything of anyone else's.

    i ∈ S  with probability q, independently;    π_i = q,   |S| ~ Binomial(|A_t|, q)

A round may ask nobody. It is the draw that privacy accounting knows best.

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
    """A coin for every client that is up."""

    cohort_size: ClassVar[int | None] = None  # left to chance
    prob: PositiveShare  # q

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return the clients whose coin fell right."""
        drawn = pool[view.streams.uniforms("selection", view.round, pool)[:, 0] < self.prob]
        ones = np.ones(len(drawn), dtype=np.int64)
        return Choice(clients=drawn, multiplicity=ones, inclusion_prob=np.full(len(drawn), self.prob))
