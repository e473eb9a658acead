"""FedProx: FedAvg in which every local step also pulls the client back towards the round's global model.

The pull keeps clients with unusual data, or with many local steps, from drifting far from each other.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ_i times:  x_i ← x_i − η_l ( ∇f_i(x_i; batch) + μ (x_i − x) )
        Δ_i ← x − x_i                              also of a client that stopped early
    x ← x − Σ_{i∈S_t} w_i Δ_i

Choice per axis:
    local        sgd with prox_strength = μ
    aggregation  fedavg

Reduces to: FedAvg when μ = 0, and for any μ when every client takes one step.
When to use it: when clients hold very different data or do many local steps, and you want to keep FedAvg's messages
and memory. Too large a μ slows every client down: tune it.
Reference: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. MLSys 2020. arXiv:1812.06127.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("FedProx", settings={"prox_strength": 0.1}, scenario={"local": {"epochs": 5}})


@algorithm
def fedprox(
    *,
    prox_strength: Positive = 0.01,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of FedProx.

    Args:
        prox_strength: strength μ of the pull towards the global model, above 0, usually 0.001 to 1.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", "prox_strength": prox_strength, **local},
        "aggregation": {"use": "fedavg"},
    }
