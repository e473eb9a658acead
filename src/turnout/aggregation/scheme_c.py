"""Scheme C: a client that did part of its work counts as if it had gone on in the same way.

Intuition: half the steps, twice the weight, so that nobody is forgotten for being slow.

    c_k = (E_k / s_k) p_k,   0 where s_k = 0
    u   = Σ_k c_k Δ_k

Every client is asked each round; one that is down counts as s_k = 0.

Reduces to: FedAvg when everyone finishes; FedNova's direction, with τ_eff = E, when all are asked for E plain steps.
Differs from the paper: E_k may differ from client to client, as it does when work is set in epochs; unequal E_k are
then kept, as what was asked for.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from turnout.aggregation.scheme_a import cohort_objections
from turnout.array_types import Floats, Ids
from turnout.rows import Facts
from turnout.settings import rule


def completed_coefficients(weights: Floats, asked_steps: Ids, local_steps: Ids) -> Floats:
    """Return (E_k / s_k) p_k of each row, and 0 of the idle."""
    done = np.maximum(local_steps, 1)
    return np.where(local_steps > 0, weights * asked_steps / done, 0.0)


@rule("aggregation")
class SchemeC:
    """Partial work, scaled up to what was asked."""

    def coefficients(self, facts: Facts) -> Floats:
        """Return (E_k / s_k) p_k."""
        return completed_coefficients(facts.weights, facts.asked_steps, facts.local_steps)

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a sub-sampling selection does not go with this rule."""
        return cohort_objections(self, plan)
