"""FedExP: FedAvg with a server learning rate that is computed in each round from the clients' updates.

The more the updates cancel in their average, the longer the step that the average may take.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    u ← Σ_{i∈S_t} w_i Δ_i
    η_g ← max( 1, Σ_{i∈S_t} w_i ‖Δ_i‖² / (2 (‖u‖² + ε)) )
    x ← x − η_g u                                  evaluated at the mean of the last two iterates

Choice per axis:
    aggregation  fedavg
    server       fedexp

Reduces to: FedAvg when all updates are equal, when one client answers, and as ε → ∞.
When to use it: when clients hold different data but some model fits all of them (over-parameterised models), and you
would rather not tune η_g.
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

from turnout.algorithms.algorithm import Sections, Weighting, algorithm
from turnout.algorithms.example import Example
from turnout.settings import NonNegative

EXAMPLE = Example("FedExP")


@algorithm
def fedexp(*, eps: NonNegative = 1e-3, weighting: Weighting = "ratio") -> Sections:
    """Return the sections of FedExP.

    Args:
        eps: constant ε in the denominator, 0 or more, usually 0.001 to 0.1; larger values keep η_g closer to 1.
        weighting: weights of the updates: "ratio" by data size, "mean" all equal, "ht" and "ht-fleet" divided by the
            probability of taking part; usually "ratio".
    """
    return {
        "aggregation": {"use": "fedavg", "weighting": weighting},
        "server": {"use": "fedexp", "eps": eps},
    }
