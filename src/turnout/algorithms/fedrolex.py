"""FedRolex: clients train a window of every hidden layer that moves on in every round.

Every unit is trained equally often, by narrow clients too. So the model may be wider than any device can train.

Round:
    S_t ← K clients of those available, client i with rate r_i
    for each client i in S_t, in parallel:
        x_i ← the parameters of x between units t, …, t + ⌈r_i d_l⌉ − 1 (modulo d_l) of each layer l;  trains locally
        Δ_i ← x − x_i there, and m_ij ← 1 where client i has parameter j
    x_j ← x_j − Σ_i w_i m_ij Δ_ij / Σ_i w_i m_ij for every j that a client trained

Choice per axis:
    width        rolling
    aggregation  fedavg

Reduces to: HeteroFL without its scaler when the window does not move.
When to use it: when few or no devices can train the whole model.
Reference: Alam, Liu, Yan, Zhang. NeurIPS 2022. arXiv:2212.01548.
"""

from turnout.algorithms.algorithm import Assignment, Sections, Weighting, algorithm
from turnout.algorithms.example import Example
from turnout.settings import CountOrZero, PositiveShare

EXAMPLE = Example(
    "FedRolex",
    settings={"rates": [0.5, 0.25]},
    scenario={"model": {"use": "mlp", "hidden": [32]}, "selection": {"use": "uniform", "cohort_size": 10}},
)


@algorithm
def fedrolex(
    *,
    rates: tuple[PositiveShare, ...],
    assign: Assignment = "fixed",
    stride: CountOrZero = 1,
    weighting: Weighting = "mean",
) -> Sections:
    """Return the sections of FedRolex.

    Args:
        rates: rates r of the clients, above 0 and at most 1: the share of the units of a layer that a client trains.
        assign: who has which rate: "fixed" for good, "drawn" each round, "by-speed" of devices, "listed" one for each.
        stride: units by which the window moves on in each round, 0 or more, usually 1.
        weighting: weights of the clients' updates: "mean" counts clients alike, "ratio" counts their samples.
    """
    return {
        "width": {"use": "rolling", "rates": rates, "assign": assign, "stride": stride},
        "aggregation": {"use": "fedavg", "weighting": weighting},
    }
