"""FedNova with momentum: clients run SGD with momentum, and FedNova accounts for the work that momentum adds.

A step with momentum repeats earlier gradients, so ‖a_i‖₁ is larger than the number of steps and is counted as such.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  v ← 0;  repeat τ_i times:  v ← ρ v + ∇f_i(x_i; batch);  x_i ← x_i − η_l v
        Δ_i ← x − x_i;  ‖a_i‖₁ ← (τ_i − ρ (1 − ρ^τ_i) / (1 − ρ)) / (1 − ρ)
    x ← x − η_g τ_eff Σ_{i∈S_t} w_i Δ_i / ‖a_i‖₁   τ_eff = Σ_{i∈S_t} w_i ‖a_i‖₁

Choice per axis:
    local        sgd with momentum = ρ
    aggregation  fednova
    server       sgd

Reduces to: FedNova when ρ = 0; FedAvg with local momentum when every client takes as many steps.
When to use it: when local momentum helps, and clients do different amounts of work. Lower the local rate by about
1 − ρ against plain SGD.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481.
"""

from turnout.algorithms.algorithm import Momentum, Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("FedNova, momentum", settings={"momentum": 0.9, "lr": 0.01}, scenario={"local": {"epochs": [1, 5]}})


@algorithm
def fednova_momentum(
    *,
    momentum: Momentum = 0.9,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of FedNova with momentum at the clients.

    Args:
        momentum: momentum ρ of local SGD, between 0 and 1, usually 0.9.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", "momentum": momentum, **local},
        "aggregation": {"use": "fednova"},
        "server": {"use": "sgd", "lr": server_lr},
    }
