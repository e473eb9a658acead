"""HeteroFL: clients train the first units of every hidden layer, as many as their devices can take.

A narrow model is the corner of the wide one. The server averages every parameter over the clients that trained it, and
keeps one model for all.

Round:
    S_t ← K clients of those available, client i with rate r_i
    for each client i in S_t, in parallel:
        x_i ← the parameters of x between the first ⌈r_i d_l⌉ units of each hidden layer l;  trains locally,
            and the outputs of these units are divided by their share
        Δ_i ← x − x_i there, and m_ij ← 1 where client i has parameter j
    x_j ← x_j − Σ_i w_i m_ij Δ_ij / Σ_i w_i m_ij for every j that a client trained

Choice per axis:
    width        nested
    aggregation  fedavg

Reduces to: FedAvg when every rate is 1.
When to use it: when some devices are too slow or too small for the whole model. Bytes, time and gradients are those of
the narrow models.
Reference: Diao, Ding, Tarokh. ICLR 2021. arXiv:2010.01264.
"""

from turnout.algorithms.algorithm import Assignment, Sections, Weighting, algorithm
from turnout.algorithms.example import Example
from turnout.settings import PositiveShare

EXAMPLE = Example(
    "HeteroFL",
    settings={"rates": [1.0, 0.5, 0.25]},
    scenario={"model": {"use": "mlp", "hidden": [32]}, "selection": {"use": "uniform", "cohort_size": 10}},
)


@algorithm
def heterofl(
    *,
    rates: tuple[PositiveShare, ...],
    assign: Assignment = "fixed",
    scaler: bool = True,
    mask_labels: bool = False,
    weighting: Weighting = "mean",
) -> Sections:
    """Return the sections of HeteroFL.

    Args:
        rates: rates r of the clients, above 0 and at most 1: the share of the units of a layer that a client trains.
        assign: who has which rate: "fixed" for good, "drawn" each round, "by-speed" of devices, "listed" one for each.
        scaler: whether the outputs of cut layers are divided by the share of their units that is there, in training.
        mask_labels: whether the logits of labels that a client does not hold are 0 in training; on in the paper.
        weighting: weights of the clients' updates: "mean" counts clients alike, "ratio" counts their samples.
    """
    return {
        "width": {
            "use": "nested",
            "rates": rates,
            "assign": assign,
            "scaler": scaler,
            "mask_labels": mask_labels,
        },
        "aggregation": {"use": "fedavg", "weighting": weighting},
    }
