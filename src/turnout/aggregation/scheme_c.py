"""Scheme C: scale an unfinished update up, as if the client had continued at the same pace.

Intuition: half the steps, twice the weight, so that the objective does not neglect slow clients.

    c_k = (E_k / s_k) p_k,   0 if s_k = 0
    u   = Σ_k c_k Δ_k

E_k is the number of local steps client k is asked for, s_k the number it completes. Every client is asked in every
round; an unavailable client has s_k = 0.

Reduces to: FedAvg when everyone finishes; FedNova's direction, with τ_eff = E, when all are asked for E plain steps.
Differs from the paper: E_k may differ from client to client, as it does when work is set in epochs. A client with a
larger E_k then has a larger update; the rule does not correct for that.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from typing import ClassVar

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.rows import Facts
from turnout.settings import rule


def completed_coefficients(weights: Floats, asked_steps: Ids, local_steps: Ids) -> Floats:
    """Return (E_k / s_k) p_k of each client, and 0 for clients that did no step."""
    divisor = np.maximum(local_steps, 1)
    return np.where(local_steps > 0, weights * asked_steps / divisor, 0.0)


@rule("aggregation")
class SchemeC:
    """Average all updates, scaled up to the asked number of steps. No settings."""

    needs_everyone: ClassVar[bool] = True
    divides_by_work: ClassVar[str] = "incomplete"

    def coefficients(self, facts: Facts) -> Floats:
        """Return (E_k / s_k) p_k."""
        return completed_coefficients(facts.weights, facts.asked_steps, facts.local_steps)
