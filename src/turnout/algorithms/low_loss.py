"""Low-loss selection: of d candidates, train on the K clients with the smallest loss.

Clients whose labels are wrong cannot be fitted, keep a large loss, and are passed over.

Round:
    𝒜 ← d clients of those available, drawn without replacement in proportion to p_i
    every i in 𝒜 reports its loss L_i
    S_t ← the K clients of 𝒜 with the smallest L_i;  each trains locally and returns Δ_i
    x ← x − (1/K) Σ_{i∈S_t} Δ_i

Choice per axis:
    selection    low-loss
    aggregation  fedavg with weighting = "mean"

Reduces to: drawing K clients in proportion to their data when d = K.
When to use it: when some clients hold corrupted labels, and fairness to unusual clients matters less: honest clients
with hard data are passed over as well.
Reference: Joshi. Slides on heterogeneity-aware federated optimisation; Cho, Wang, Joshi. arXiv:2010.01243.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients

EXAMPLE = Example(
    "low-loss selection",
    settings={"cohort_size": 5, "pool_size": 10},
    scenario={"attack": {"use": "label-flip", "fraction": 0.3}},
)


@algorithm
def low_loss(*, cohort_size: Clients, pool_size: Clients, estimate: Literal["full", "last"] = "full") -> Sections:
    """Return the sections of low-loss selection.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        pool_size: number d of candidates, K or more, usually 2 to 10 times K.
        estimate: loss of a candidate: "full" on all its samples, "last" as it reported when it last trained.
    """
    sizes = {"cohort_size": cohort_size, "pool_size": pool_size}
    return {
        "selection": {"use": "low-loss", "estimate": estimate, **sizes},
        "aggregation": {"use": "fedavg", "weighting": "mean"},
    }
