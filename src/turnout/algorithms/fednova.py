"""FedNova: the server averages each client's progress per unit of local work, then multiplies by the mean work.

A client that took fifty steps no longer outvotes one that took five, so unequal work does not change the objective.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  take τ_i local steps;  Δ_i ← x − x_i;  ‖a_i‖₁ ← its local work (τ_i for plain SGD)
    τ_eff ← Σ_{i∈S_t} w_i ‖a_i‖₁                   effective = "steps":  Σ w_i τ_i
    x ← x − η_g τ_eff Σ_{i∈S_t} w_i Δ_i / ‖a_i‖₁

Choice per axis:
    local        any solver; sgd if the study names none
    aggregation  fednova
    server       sgd

Reduces to: FedAvg when every client does the same local work.
When to use it: when clients do different amounts of work (different data sizes with a fixed number of epochs, different
speeds, interrupted work). With equal work it is FedAvg and costs nothing.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Weighting, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("FedNova", scenario={"local": {"epochs": [1, 5]}})


@algorithm
def fednova(
    *,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    weighting: Weighting = "ratio",
    effective: Literal["work", "steps"] = "work",
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of FedNova.

    Args:
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
        weighting: weights of the updates: "ratio" by data size, "mean" all equal, "ht" and "ht-fleet" divided by the
            probability of taking part; usually "ratio".
        effective: τ_eff, the mean of the local "work" ‖a_i‖₁ or of the local "steps" τ_i; usually "work".
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    return {
        "local": given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size),
        "aggregation": {"use": "fednova", "weighting": weighting, "effective": effective},
        "server": {"use": "sgd", "lr": server_lr},
    }
