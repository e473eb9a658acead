"""FjORD: clients draw a width for every local step, up to the one that their devices can take.

The first units are trained at every step and the last ones seldom, so that units are in order of importance, and any
narrow part of the model can be used by itself.

Round:
    S_t ← K clients of those available, client i with rate r_i
    for each client i in S_t, in parallel:
        x_i ← x;  for each local step: draw p ≤ r_i of the rates, and
            step on the parameters of x_i between the first ⌈p d_l⌉ units of each hidden layer l
        Δ_i ← x − x_i, and m_ij ← 1 where r_i includes parameter j
    x_j ← x_j − Σ_i w_i m_ij Δ_ij / Σ_i w_i m_ij for every j that a client has

Choice per axis:
    width        ordered
    aggregation  fedavg

Reduces to: FedAvg when the only rate is 1.
When to use it: when narrow parts of the final model are to be used on small devices. With distil = true a step is one
on all of x_i, and the narrow part learns from its predictions.
Reference: Horváth, Laskaridis, Almeida, Leontiadis, Venieris, Lane. NeurIPS 2021. arXiv:2102.13451.
"""

from turnout.algorithms.algorithm import Assignment, Sections, Weighting, algorithm
from turnout.algorithms.example import Example
from turnout.settings import PositiveShare

EXAMPLE = Example(
    "FjORD",
    settings={"rates": [1.0, 0.5, 0.25]},
    scenario={"model": {"use": "mlp", "hidden": [32]}, "selection": {"use": "uniform", "cohort_size": 10}},
)


@algorithm
def fjord(
    *,
    rates: tuple[PositiveShare, ...],
    assign: Assignment = "fixed",
    distil: bool = False,
    weighting: Weighting = "ratio",
) -> Sections:
    """Return the sections of FjORD.

    Args:
        rates: rates r of the clients, above 0 and at most 1: the share of the units of a layer that a client trains.
        assign: who has which rate: "fixed" for good, "drawn" each round, "by-speed" of devices, "listed" one for each.
        distil: whether the narrow part of a step learns from the predictions of the client's own width.
        weighting: weights of the clients' updates: "mean" counts clients alike, "ratio" counts their samples.
    """
    return {
        "width": {"use": "ordered", "rates": rates, "assign": assign, "distil": distil},
        "aggregation": {"use": "fedavg", "weighting": weighting},
    }
