"""cpow-d: power-of-choice in which candidates estimate their loss on one mini-batch.

It needs less computation than pow-d, and its choice is noisier.

Round:
    𝒜 ← d clients of those available, drawn without replacement in proportion to p_i
    every i in 𝒜 reports its loss L_i on one mini-batch of min(B, n_i) samples
    S_t ← the K clients of 𝒜 with the largest L_i;  each trains locally and returns Δ_i
    x ← x − (1/K) Σ_{i∈S_t} Δ_i

Choice per axis:
    selection    power-of-choice with estimate = "batch"
    aggregation  fedavg with weighting = "mean"

Reduces to: power-of-choice when every client holds at most B samples.
When to use it: in place of power-of-choice when clients hold much data, and evaluating all of it takes too long.
Reference: Cho, Wang, Joshi. Towards understanding biased client selection. AISTATS 2022. arXiv:2010.01243.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients, Count

EXAMPLE = Example("cpow-d", settings={"cohort_size": 5, "pool_size": 10, "batch_size": 16})


@algorithm
def cpow_d(*, cohort_size: Clients, pool_size: Clients, batch_size: Count) -> Sections:
    """Return the sections of cpow-d.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        pool_size: number d of candidates, K or more, usually 2 to 10 times K.
        batch_size: samples B of the mini-batch that a candidate evaluates, 1 or more, usually 32 to 128.
    """
    sizes = {"cohort_size": cohort_size, "pool_size": pool_size, "batch_size": batch_size}
    return {
        "selection": {"use": "power-of-choice", "estimate": "batch", **sizes},
        "aggregation": {"use": "fedavg", "weighting": "mean"},
    }
