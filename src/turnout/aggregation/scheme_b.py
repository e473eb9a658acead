"""Scheme B: whatever a client got done counts with its share of the data.

Intuition: an unfinished answer is better than none, and is taken as it is.

    c_k = p_k
    u   = Σ_k p_k Δ_k

Every client is asked each round; one that is down counts as s_k = 0, and its share is not handed to the others. The
fixed point leans to the clients that do more: their changes are larger.

Reduces to: FedAvg when everyone answers; p_k is then all there is.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from collections.abc import Iterator
from typing import Any

from turnout.aggregation.scheme_a import cohort_objections
from turnout.array_types import Floats
from turnout.rows import Facts
from turnout.settings import rule


@rule("aggregation")
class SchemeB:
    """Partial work at face value."""

    def coefficients(self, facts: Facts) -> Floats:
        """Return p_k."""
        return facts.weights.copy()

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a sub-sampling selection does not go with this rule."""
        return cohort_objections(self, plan)
