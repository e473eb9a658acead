"""FedVARP: the server remembers the last update of every client and uses it for clients that are not asked.

This removes most of the variance that comes from asking only some of the clients, at the cost of one vector per client
at the server.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    v ← (1/|S_t|) Σ_{i∈S_t} (Δ_i − y_i) + (1/N) Σ_j y_j
    x ← x − v
    y_i ← Δ_i for i in S_t                         after v, which uses the old y

Choice per axis:
    aggregation  fedvarp
    server       sgd

Reduces to: FedAvg with equal weights when everyone takes part, and in the first round.
When to use it: when few of many clients take part in a round, they hold different data, each comes back from time to
time, and the server can store one model-sized vector per client.
Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi. UAI 2022. arXiv:2207.14130.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example

EXAMPLE = Example("FedVARP", scenario={"selection": {"cohort_size": 3}})


@algorithm
def fedvarp(*, weighting: Literal["mean", "ht", "ht-fleet"] = "mean", normalise_by_lr: bool = False) -> Sections:
    """Return the sections of FedVARP.

    Args:
        weighting: weights of the clients: "mean" all equal, "ht" and "ht-fleet" by data size, divided by the
            probability of taking part; usually "mean".
        normalise_by_lr: whether Δ_i / η_l is remembered, for local rates that change; usually false.
    """
    return {
        "aggregation": {"use": "fedvarp", "weighting": weighting, "normalise_by_lr": normalise_by_lr},
        "server": {"use": "sgd"},
    }
