"""Scheme A: only clients that finished all their local steps count.

Intuition: the server discards unfinished updates and lets the finished ones represent all clients.

    c_k = N p_k / K_τ   if s_k = E_k, else 0           K_τ: number of clients that finished
    u   = Σ_k c_k Δ_k                                  u = 0 if no client finished

E_k is the number of local steps client k is asked for, s_k the number it completes. Every client is asked in every
round; an unavailable client has s_k = 0. If finishing depends on the client, the objective is biased towards clients
that finish.

Reduces to: FedAvg when everyone finishes.
Differs from the paper: E_k may differ from client to client, as it does when work is set in epochs.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from typing import ClassVar

import numpy as np

from turnout.array_types import Floats
from turnout.rows import Facts
from turnout.settings import rule


def complete_coefficients(facts: Facts) -> Floats:
    """Return N p_k / K_τ for the clients that finished, and 0 for the others."""
    is_complete = facts.local_steps >= facts.asked_steps
    num_complete = max(int(is_complete.sum()), 1)  # K_τ
    return np.where(is_complete, facts.num_clients * facts.weights / num_complete, 0.0)


@rule("aggregation")
class SchemeA:
    """Average the complete updates only. No settings."""

    needs_everyone: ClassVar[bool] = True

    def coefficients(self, facts: Facts) -> Floats:
        """Return N p_k / K_τ for complete work, else 0."""
        return complete_coefficients(facts)
