"""FedNova with a proximal term: clients run FedProx's local steps, and FedNova counts the work that the pull undoes.

The pull undoes a part of every earlier step, so ‖a_i‖₁ is smaller than the number of steps and is counted as such.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ_i times:  x_i ← x_i − η_l ( ∇f_i(x_i; batch) + μ (x_i − x) )
        Δ_i ← x − x_i;  ‖a_i‖₁ ← (1 − (1 − η_l μ)^τ_i) / (η_l μ)
    x ← x − η_g τ_eff Σ_{i∈S_t} w_i Δ_i / ‖a_i‖₁   τ_eff = Σ w_i ‖a_i‖₁, or Σ w_i τ_i with effective = "steps"

Choice per axis:
    local        sgd with prox_strength = μ
    aggregation  fednova
    server       sgd

Reduces to: FedNova when μ = 0; FedProx when every client takes as many steps and effective = "work".
When to use it: when clients hold very different data and do different amounts of work.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("FedNova, proximal", settings={"prox_strength": 0.1}, scenario={"local": {"epochs": [1, 5]}})


@algorithm
def fednova_prox(
    *,
    prox_strength: Positive = 0.01,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    effective: Literal["work", "steps"] = "work",
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of FedNova with a proximal term.

    Args:
        prox_strength: strength μ of the pull towards the global model, above 0, usually 0.001 to 1.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
        effective: τ_eff, the mean of the local "work" ‖a_i‖₁ or of the local "steps" τ_i; usually "work".
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", "prox_strength": prox_strength, **local},
        "aggregation": {"use": "fednova", "effective": effective},
        "server": {"use": "sgd", "lr": server_lr},
    }
