"""MIFA: the server averages the last update of every client, whoever is available.

A client that is away counts with what it last sent, so that long absences do not change the objective.

Round:
    S_t ← K clients of those available (in the paper all of them);  each trains locally and returns Δ_i
    G_i ← Δ_i / η_l for i in S_t
    x ← x − η_l (1/N) Σ_j G_j

Choice per axis:
    aggregation  mifa
    server       sgd

Reduces to: FedAvg with equal weights when everyone takes part.
When to use it: when availability depends on the data (some kinds of client are away most of the time) and the server
can store one model-sized vector per client. Old memories slow it down: prefer FedVARP when absence is at random.
Reference: Gu, Huang, Zhang, Huang. NeurIPS 2021. arXiv:2106.04159.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example

EXAMPLE = Example("MIFA", scenario={"fleet": {"availability": {"use": "bernoulli", "profile": "labels"}}})


@algorithm
def mifa(*, wait: bool = False, weighting: Literal["mean", "ratio"] = "mean") -> Sections:
    """Return the sections of MIFA.

    Args:
        wait: whether the model stays as it is until every client has answered once; usually false.
        weighting: weights of the clients: "mean" all equal, "ratio" by data size; usually "mean".
    """
    return {"aggregation": {"use": "mifa", "wait": wait, "weighting": weighting}, "server": {"use": "sgd"}}
