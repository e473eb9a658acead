"""FedAdagrad: FedAvg with Adagrad at the server.

The average update is the server's gradient, and each parameter's step shrinks with all the movement it has seen.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    u ← Σ_{i∈S_t} w_i Δ_i
    m ← β1 m + (1 − β1) u;  v ← v + u²
    x ← x − η_g m / (√v + τ_a)

Choice per axis:
    aggregation  fedavg
    server       fedadagrad

Reduces to: FedAvg with one rate for all parameters as τ_a → ∞ and η_g / τ_a → 1 with β1 = 0.
When to use it: when some parameters rarely move, such as word embeddings, and steps may shrink for good.
Reference: Reddi et al. Adaptive federated optimization. ICLR 2021. arXiv:2003.00295.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Positive, ShareBelowOne

EXAMPLE = Example("FedAdagrad")


@algorithm
def fedadagrad(*, server_lr: Positive = 0.1, beta1: ShareBelowOne = 0.0, adaptivity: Positive = 1e-3) -> Sections:
    """Return the sections of FedAdagrad.

    Args:
        server_lr: learning rate η_g of the server, above 0, usually 0.01 to 1.
        beta1: momentum β1 of the server, 0 to below 1, usually 0.
        adaptivity: constant τ_a added to the root, above 0, usually 0.001; larger values adapt less.
    """
    return {
        "aggregation": {"use": "fedavg"},
        "server": {"use": "fedadagrad", "lr": server_lr, "beta1": beta1, "adaptivity": adaptivity},
    }
