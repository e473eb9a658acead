"""FedYogi: FedAvg with Yogi at the server.

It is FedAdam with a second moment that rises and falls by a fixed share of the newest square and forgets slowly.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    u ← Σ_{i∈S_t} w_i Δ_i
    m ← β1 m + (1 − β1) u;  v ← v − (1 − β2) u² sign(v − u²)
    x ← x − η_g m / (√v + τ_a)

Choice per axis:
    aggregation  fedavg
    server       fedyogi

Reduces to: FedAdam in the first round.
When to use it: where FedAdam would, when updates are sparse or differ much from round to round.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Positive, ShareBelowOne

EXAMPLE = Example("FedYogi", settings={"server_lr": 0.03})


@algorithm
def fedyogi(
    *, server_lr: Positive = 0.01, beta1: ShareBelowOne = 0.9, beta2: ShareBelowOne = 0.99, adaptivity: Positive = 1e-3
) -> Sections:
    """Return the sections of FedYogi.

    Args:
        server_lr: learning rate η_g of the server, above 0, usually 0.001 to 0.1.
        beta1: decay β1 of the first moment, 0 to below 1, usually 0.9.
        beta2: decay β2 of the second moment, 0 to below 1, usually 0.99.
        adaptivity: constant τ_a added to the root, above 0, usually 0.001; larger values adapt less.
    """
    server = {"lr": server_lr, "beta1": beta1, "beta2": beta2, "adaptivity": adaptivity}
    return {"aggregation": {"use": "fedavg"}, "server": {"use": "fedyogi", **server}}
