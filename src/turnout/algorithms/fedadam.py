"""FedAdam: FedAvg with Adam at the server.

The average update is the server's gradient, and each parameter's step is divided by the recent size of its movement.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    u ← Σ_{i∈S_t} w_i Δ_i
    m ← β1 m + (1 − β1) u;  v ← β2 v + (1 − β2) u²
    x ← x − η_g m / (√v + τ_a)

Choice per axis:
    aggregation  fedavg
    server       fedadam

Reduces to: FedYogi in the first round; FedAvg as τ_a → ∞ and η_g / τ_a → 1 with β1 = 0.
When to use it: for models whose parameters need very different rates (embeddings, transformers), when there are too
few rounds to tune FedAvg's rates. Tune η_g together with τ_a.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Positive, ShareBelowOne

EXAMPLE = Example("FedAdam", settings={"server_lr": 0.03})


@algorithm
def fedadam(
    *, server_lr: Positive = 0.01, beta1: ShareBelowOne = 0.9, beta2: ShareBelowOne = 0.99, adaptivity: Positive = 1e-3
) -> Sections:
    """Return the sections of FedAdam.

    Args:
        server_lr: learning rate η_g of the server, above 0, usually 0.001 to 0.1.
        beta1: decay β1 of the first moment, 0 to below 1, usually 0.9.
        beta2: decay β2 of the second moment, 0 to below 1, usually 0.99.
        adaptivity: constant τ_a added to the root, above 0, usually 0.001; larger values adapt less.
    """
    server = {"lr": server_lr, "beta1": beta1, "beta2": beta2, "adaptivity": adaptivity}
    return {"aggregation": {"use": "fedavg"}, "server": {"use": "fedadam", **server}}
