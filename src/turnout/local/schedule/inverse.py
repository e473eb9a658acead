"""Inverse: the local learning rate falls as one over the round, and is steady within it.

Intuition: large strides first, then ever smaller ones, so that noise dies out and no distance is out of reach.

    η_t = η_l / t          t = 1 in the first round, and again in the first round after clients arrived or left for good

Reduces to: a constant rate in a run of one round.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from turnout.settings import rule


@rule("local.schedule")
class Inverse:
    """One over the round. No settings."""

    def factor(self, round: int) -> float:
        """Return 1/t."""
        return 1.0 / round
