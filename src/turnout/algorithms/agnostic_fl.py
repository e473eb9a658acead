"""Agnostic federated learning: train the model for the worst mixture of the clients.

The server keeps a weight for every client and raises it where the loss is large. Its authors call it AFL, as do those
of another algorithm, active federated learning, which is `afl` here.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_k, and its loss F_k(x) at the round's model
    x ← x − Σ_{k∈S_t} λ_k Δ_k / Σ_{k∈S_t} λ_k
    λ_k ← λ_k exp(γ F_k(x)) for k in S_t, scaled so that their sum stays

Choice per axis:
    aggregation  agnostic

Reduces to: FedAvg when γ = 0.
When to use it: when no client may be served badly, and it is not known which mixture of clients will use the model.
Reference: Mohri, Sivek, Suresh. Agnostic federated learning. ICML 2019. arXiv:1902.00146.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import NonNegative

EXAMPLE = Example("agnostic FL", settings={"rate": 0.1})


@algorithm
def agnostic_fl(*, rate: NonNegative = 0.1) -> Sections:
    """Return the sections of agnostic federated learning.

    Args:
        rate: learning rate γ of the clients' weights, 0 or more, usually 0.01 to 1; 0 is FedAvg.
    """
    return {"aggregation": {"use": "agnostic", "rate": rate}}
