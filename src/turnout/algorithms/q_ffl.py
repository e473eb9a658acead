"""q-FFL: fair resource allocation, in which a client counts the more the larger its loss is (q-FedAvg).

Updates are weighted by the q-th power of the loss, and the length of the step follows from the losses and the updates:
no learning rate has to be tuned again for each q.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_k, and its loss F_k(x) at the round's model
    h_k ← q F_k^{q−1} ‖Δ_k/η_l‖² + F_k^q / η_l
    x ← x − Σ_{k∈S_t} b_k F_k^q (Δ_k/η_l) / Σ_{k∈S_t} b_k h_k

Choice per axis:
    aggregation  q-ffl

Reduces to: FedAvg when q = 0.
When to use it: when the accuracy should be about the same for all clients, at some cost to the mean.
Reference: Li, Sanjabi, Beirami, Smith. Fair resource allocation in federated learning. ICLR 2020. arXiv:1905.10497.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import NonNegative

EXAMPLE = Example("q-FFL", settings={"power": 1.0})


@algorithm
def q_ffl(*, power: NonNegative = 1.0) -> Sections:
    """Return the sections of q-FFL.

    Args:
        power: power q of the loss, 0 or more, usually 0.1 to 5; 0 is FedAvg.
    """
    return {"aggregation": {"use": "q-ffl", "power": power}}
