"""Inverse: the local learning rate is divided by the round, and is constant within a round.

Intuition: the steps become small enough for noise to vanish, but their sum is infinite, so every point can be reached.

    η_t = η_l / t          t = 1 in the first round, and again in the first round after the objective changed

Reduces to: a constant learning rate in a run of one round.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from turnout.settings import rule


@rule("local.schedule")
class Inverse:
    """One over the round. No settings."""

    def factor(self, round: int) -> float:
        """Return 1/t."""
        return 1.0 / round
