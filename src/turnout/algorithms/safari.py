"""SAFARI: a coin in each round decides whether clients train or the server takes steps on samples of its own.

The server's samples stand in for clients that never take part.

Round:
    with probability q, a client round:
        S_t ← K clients of those available;  each trains locally and returns Δ_i
        x ← x − (1/|S_t|) Σ_{i∈S_t} Δ_i
    else a server round, once or several times:
        x ← x − η_s ∇F_T(x; batch of the server's samples T)

Choice per axis:
    assist       safari
    aggregation  fedavg with weighting = "mean"

Reduces to: FedAvg when q = 1; centralised SGD on the server's samples when q = 0.
When to use it: when some clients never take part, their data differs from everyone else's, and the server can hold a
few samples of all kinds.
Reference: Zhang, Yang, Liu. Federated learning with server assistance (SA-FL), SAFARI.
"""

from turnout.algorithms.algorithm import Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive, Share

EXAMPLE = Example(
    "SAFARI",
    settings={"server_lr": 0.1},
    scenario={"data": {"server_samples": 50}, "fleet": {"availability": {"use": "never", "count": 6}}},
)


@algorithm
def safari(
    *, server_lr: Positive, client_prob: Share = 0.5, server_steps: Count = 1, server_batch_size: Count | None = None
) -> Sections:
    """Return the sections of SAFARI.

    Args:
        server_lr: learning rate η_s of a server step, above 0, usually τ/2 times the local rate for τ local steps.
        client_prob: probability q of a client round, 0 to 1, usually 0.5 to 0.9.
        server_steps: steps of a server round, 1 or more, usually 1.
        server_batch_size: samples of a server step, 1 or more; left out, all the server's samples.
    """
    steps = given(steps=server_steps, batch_size=server_batch_size)
    return {
        "assist": {"use": "safari", "lr": server_lr, "client_prob": client_prob, **steps},
        "aggregation": {"use": "fedavg", "weighting": "mean"},
    }
