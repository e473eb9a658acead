"""Constant: the same local learning rate in every round.

Intuition: with a constant learning rate, only the algorithm itself changes how fast training is.

    η_t = η_l

Reduces to: the solver's own lr; this is the default.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629.
"""

from turnout.settings import rule


@rule("local.schedule")
class Constant:
    """The same learning rate in every round. No settings."""

    def factor(self, round: int) -> float:
        """Return 1."""
        return 1.0
