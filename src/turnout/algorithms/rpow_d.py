"""rpow-d: power-of-choice that uses the loss each client reported when it last trained.

Candidates need not be asked, so that it costs no extra communication; clients never heard from go first.

Round:
    𝒜 ← d clients of those available, drawn without replacement in proportion to p_i
    S_t ← the K clients of 𝒜 with the largest L_i, +∞ if i never took part
    each i in S_t trains locally and returns Δ_i and its mean training loss L_i
    x ← x − (1/K) Σ_{i∈S_t} Δ_i

Choice per axis:
    selection    power-of-choice with estimate = "last"
    aggregation  fedavg with weighting = "mean"

Reduces to: drawing K clients in proportion to their data when d = K.
When to use it: in place of power-of-choice when an extra exchange with candidates is too dear. Reported losses grow
old: use a larger d than for pow-d.
Reference: Cho, Wang, Joshi. Towards understanding biased client selection. AISTATS 2022. arXiv:2010.01243.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients

EXAMPLE = Example("rpow-d", settings={"cohort_size": 5, "pool_size": 15})


@algorithm
def rpow_d(*, cohort_size: Clients, pool_size: Clients) -> Sections:
    """Return the sections of rpow-d.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        pool_size: number d of candidates, K or more, usually 2 to 10 times K.
    """
    sizes = {"cohort_size": cohort_size, "pool_size": pool_size}
    return {
        "selection": {"use": "power-of-choice", "estimate": "last", **sizes},
        "aggregation": {"use": "fedavg", "weighting": "mean"},
    }
