"""FedBN: every client keeps the normalisation layers for itself, and the others are shared.

Clients may see the same things in another light: their features differ in mean and spread, which normalisation layers
take out. So these layers and their running statistics stay at the client.

Round:
    S_t ← K clients of those available;  x = (φ, h);  h: the normalisation layers
    for each client i in S_t, in parallel:
        (φ_i, h_i) ← (φ, h_i);  repeat τ_i times:  (φ_i, h_i) ← (φ_i, h_i) − η_l ∇f_i(φ_i, h_i; batch)
        Δ_i ← φ − φ_i;  h_i stays at the client, with its running means and variances
    φ ← φ − Σ_{i∈S_t} w_i Δ_i
    before it is used: client i uses the shared φ with its own h_i

Choice per axis:
    local        sgd
    personal     layers with keep_norms, order = "together"
    aggregation  fedavg

Reduces to: FedPer on the parameters of the normalisation layers when these have no running statistics.
When to use it: when clients have the same labels and other sensors, cameras or hands. The model needs normalisation
layers. It sends less than FedAvg.
Reference: Li, Jiang, Zhang, Kamp, Dou. ICLR 2021. arXiv:2102.07623.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example(
    "FedBN",
    scenario={
        "data": {"holdout": 0.25, "partition": {"use": "dirichlet", "concentration": 0.3, "min_size": 8}},
        "model": {"use": "mlp", "hidden": [32], "batch_norm": True},
        "local": {"epochs": 2, "batches": "replaced"},
    },
)


@algorithm
def fedbn(
    *,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of FedBN.

    Args:
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", **local},
        "personal": {"use": "layers", "keep_norms": True, "order": "together"},
        "aggregation": {"use": "fedavg"},
    }
