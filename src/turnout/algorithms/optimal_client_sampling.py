"""Optimal client sampling: n clients train, and those with a larger update are more likely to send it.

The probabilities minimise the variance of the average for a given number of uploads, and the weights keep it unbiased.

Round:
    n clients of those available train locally;  each reports U_i = p_i ‖Δ_i‖
    q_i ← min(1, c U_i), with c such that Σ_i q_i = m
    each client sends Δ_i with probability q_i, independently:  S_t
    x ← x − Σ_{i∈S_t} (p_i / π_i) Δ_i              π_i = q_i n / |A_t|

Choice per axis:
    selection    optimal
    aggregation  fedavg with weighting = "ht"

Reduces to: uniform selection of n clients when m = n.
When to use it: when uploading is much dearer than local training. It saves bytes, not computation: n clients train for
m uploads.
Reference: Chen, Horváth, Richtárik. Optimal client sampling for federated learning. TMLR 2022. arXiv:2010.13723.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients, Count

EXAMPLE = Example("optimal client sampling", settings={"cohort_size": 3, "pool_size": 10})


@algorithm
def optimal_client_sampling(
    *,
    cohort_size: Clients,
    pool_size: Clients,
    probabilities: Literal["exact", "iterative"] = "exact",
    iterations: Count = 4,
) -> Sections:
    """Return the sections of optimal client sampling.

    Args:
        cohort_size: expected number m of clients that send their update, 1 to n.
        pool_size: number n of clients that train, usually 3 to 10 times m.
        probabilities: how q_i is computed: "exact", or "iterative" from sums only, for secure aggregation.
        iterations: most passes of "iterative", 1 or more, usually 4.
    """
    sizes = {"cohort_size": cohort_size, "pool_size": pool_size}
    return {
        "selection": {"use": "optimal", "probabilities": probabilities, "iterations": iterations, **sizes},
        "aggregation": {"use": "fedavg", "weighting": "ht"},
    }
