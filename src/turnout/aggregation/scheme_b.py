"""Scheme B: every returned update counts with the client's share of the data, finished or not.

Intuition: an unfinished update is better than none, and is used as it is.

    c_k = p_k
    u   = Σ_k p_k Δ_k

Every client is asked in every round; an unavailable client sends nothing, and its share p_k is not given to the others.
The fixed point is biased towards clients that do more steps, because their updates are larger.

Reduces to: FedAvg when every client returns an update, so that Σ_k p_k = 1.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from typing import ClassVar

from turnout.array_types import Floats
from turnout.rows import Facts
from turnout.settings import rule


@rule("aggregation")
class SchemeB:
    """Average all updates by data share, unscaled. No settings."""

    needs_everyone: ClassVar[bool] = True

    def coefficients(self, facts: Facts) -> Floats:
        """Return p_k."""
        return facts.weights.copy()
