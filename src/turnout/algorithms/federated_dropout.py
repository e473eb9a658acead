"""Federated Dropout: every client trains random units of every hidden layer, new ones in each round.

Dropout is decided once per client and round, so that only the parameters of the units that stay travel.

Round:
    S_t ← K clients of those available, client i with rate r_i
    for each client i in S_t, in parallel:
        x_i ← the parameters of x between ⌈r_i d_l⌉ random units of each hidden layer l;  trains locally
        Δ_i ← x − x_i there, and m_ij ← 1 where client i has parameter j
    x_j ← x_j − Σ_i w_i m_ij Δ_ij / Σ_i w_i m_ij for every j that a client trained

Choice per axis:
    width        random
    aggregation  fedavg

Reduces to: FedAvg when every rate is 1.
When to use it: when bandwidth is scarce, and every client can train a part of the model.
Reference: Caldas, Konečný, McMahan, Talwalkar. 2018. arXiv:1812.07210.
"""

from turnout.algorithms.algorithm import Assignment, Sections, Weighting, algorithm
from turnout.algorithms.example import Example
from turnout.settings import PositiveShare

EXAMPLE = Example(
    "Federated Dropout",
    settings={"rates": [0.5]},
    scenario={"model": {"use": "mlp", "hidden": [32]}, "selection": {"use": "uniform", "cohort_size": 10}},
)


@algorithm
def federated_dropout(
    *,
    rates: tuple[PositiveShare, ...],
    assign: Assignment = "fixed",
    weighting: Weighting = "ratio",
) -> Sections:
    """Return the sections of Federated Dropout.

    Args:
        rates: rates r of the clients, above 0 and at most 1: the share of the units of a layer that a client trains.
        assign: who has which rate: "fixed" for good, "drawn" each round, "by-speed" of devices, "listed" one for each.
        weighting: weights of the clients' updates: "mean" counts clients alike, "ratio" counts their samples.
    """
    return {
        "width": {"use": "random", "rates": rates, "assign": assign},
        "aggregation": {"use": "fedavg", "weighting": weighting},
    }
