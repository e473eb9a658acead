"""FedNova, hybrid momentum: FedNova with momentum at the clients and slow momentum at the server.

Local momentum speeds up each client within a round, and slow momentum carries the direction from round to round.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  v ← 0;  repeat τ_i times:  v ← ρ v + ∇f_i(x_i; batch);  x_i ← x_i − η_l v
        Δ_i ← x − x_i
    u ← τ_eff Σ_{i∈S_t} w_i Δ_i / ‖a_i‖₁           τ_eff = Σ_{i∈S_t} w_i ‖a_i‖₁
    b ← β b + u / η_l;  x ← x − η_g η_l b

Choice per axis:
    local        sgd with momentum = ρ
    aggregation  fednova
    server       slow-momentum with momentum = β

Reduces to: FedNova with local momentum when β = 0; FedNova when ρ = β = 0.
When to use it: when FedNova is too slow and its rounds agree on the direction. Lower the local rate first: both momenta
lengthen the step.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481.
"""

from turnout.algorithms.algorithm import Momentum, Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("FedNova, hybrid momentum", settings={"lr": 0.005}, scenario={"local": {"epochs": [1, 5]}})


@algorithm
def fednova_hybrid(
    *,
    momentum: Momentum = 0.9,
    server_momentum: Momentum = 0.9,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of FedNova with momentum at clients and server.

    Args:
        momentum: momentum ρ of local SGD, between 0 and 1, usually 0.9.
        server_momentum: slow momentum β of the server, between 0 and 1, usually 0.9.
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
        "server": {"use": "slow-momentum", "momentum": server_momentum, "lr": server_lr},
    }
