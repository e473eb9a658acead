"""SlowMo: FedAvg with a server momentum that is kept in units of gradients.

Dividing by the local rate before and multiplying after lets the momentum outlive a change of that rate.

Round:
    S_t ← K clients of those available;  each trains locally with the rate η_l and returns Δ_i
    u ← Σ_{i∈S_t} w_i Δ_i
    b ← β b + u / η_l;  x ← x − η_g η_l b

Choice per axis:
    aggregation  fedavg
    server       slow-momentum with momentum = β

Reduces to: FedAvgM when the local rate never changes; FedAvg with the server rate η_g when β = 0.
When to use it: instead of FedAvgM when the local learning rate follows a schedule.
Reference: Wang, Tantia, Ballas, Rabbat. SlowMo. ICLR 2020. arXiv:1910.00643.
"""

from turnout.algorithms.algorithm import Momentum, Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Positive

EXAMPLE = Example(
    "SlowMo",
    settings={"momentum": 0.7, "server_lr": 0.5},
    scenario={"local": {"schedule": {"use": "step", "milestones": [15, 25], "scale": 0.1}}},
)


@algorithm
def slowmo(*, momentum: Momentum = 0.9, server_lr: Positive = 1.0) -> Sections:
    """Return the sections of SlowMo.

    Args:
        momentum: slow momentum β of the server, between 0 and 1, usually 0.5 to 0.9.
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    return {
        "aggregation": {"use": "fedavg"},
        "server": {"use": "slow-momentum", "momentum": momentum, "lr": server_lr},
    }
