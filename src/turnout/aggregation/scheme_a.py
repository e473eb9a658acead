"""Scheme A: only clients that finished all their work count.

Intuition: an unfinished answer is thrown away, and the finished ones speak for everybody.

    c_k = N p_k / K_τ   if s_k = E_k, else 0           K_τ = how many finished
    u   = Σ_k c_k Δ_k                                  nobody finished: u = 0

Every client is asked each round; one that is down counts as s_k = 0. When finishing depends on who one is, the
objective leans to those who finish.

Reduces to: FedAvg when everyone finishes.
Differs from the paper: E_k may differ from client to client, as it does when work is set in epochs.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from turnout.array_types import Floats
from turnout.rows import Facts
from turnout.settings import rule


def complete_coefficients(facts: Facts) -> Floats:
    """Return N p_k / K_τ of the rows that are complete, and 0 of the others."""
    complete = facts.local_steps >= facts.asked_steps
    finished = max(int(complete.sum()), 1)  # K_τ
    return np.where(complete, facts.num_clients * facts.weights / finished, 0.0)


def cohort_objections(rule: object, plan: Any) -> Iterator[str]:
    """Yield why a scheme does not go with a selection that asks only some of the clients."""
    size = plan.selection.cohort_size
    if size is not None:
        yield (
            f"{type(rule).__name__} needs every client that is up to be asked: its coefficients p_k belong to all N "
            f"clients and are not corrected for a cohort; got cohort_size = {size}. Leave selection.cohort_size out, "
            "or aggregate with FedNova."
        )


@rule("aggregation")
class SchemeA:
    """Complete work only."""

    def coefficients(self, facts: Facts) -> Floats:
        """Return N p_k / K_τ for complete work, else 0."""
        return complete_coefficients(facts)

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why a sub-sampling selection does not go with this rule."""
        return cohort_objections(self, plan)
