"""FedAvgM: FedAvg with momentum at the server.

The server keeps a running sum of the average updates, so that directions on which rounds agree add up.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    u ← Σ_{i∈S_t} w_i Δ_i
    b ← β b + u;  x ← x − η_g b

Choice per axis:
    aggregation  fedavg
    server       fedavgm with momentum = β

Reduces to: FedAvg with the server rate η_g when β = 0.
When to use it: when the average update points in much the same direction for many rounds, or differs from round to
round because cohorts are small. With β = 0.9 the step grows up to tenfold: lower η_g or η_l.
Reference: Hsu, Qi, Brown. Measuring the effects of non-identical data distribution. 2019. arXiv:1909.06335.
"""

from turnout.algorithms.algorithm import Momentum, Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Positive

EXAMPLE = Example("FedAvgM", settings={"server_lr": 0.3})


@algorithm
def fedavgm(*, momentum: Momentum = 0.9, server_lr: Positive = 1.0) -> Sections:
    """Return the sections of FedAvgM.

    Args:
        momentum: momentum β of the server, between 0 and 1, usually 0.9.
        server_lr: learning rate η_g of the server, above 0, usually 0.1 to 1.
    """
    return {
        "aggregation": {"use": "fedavg"},
        "server": {"use": "fedavgm", "momentum": momentum, "lr": server_lr},
    }
