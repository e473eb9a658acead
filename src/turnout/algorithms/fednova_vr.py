"""FedNova-VR: FedNova with SCAFFOLD's control variates in the local steps.

The control variates cancel each client's drift, and FedNova keeps unequal work from changing the objective.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ_i times:  x_i ← x_i − η_l ( ∇f_i(x_i; batch) − c_i + c )
        Δ_i ← x − x_i;  c_i⁺ ← c_i − c + Δ_i / (η_l ‖a_i‖₁)
    x ← x − η_g τ_eff Σ_{i∈S_t} w_i Δ_i / ‖a_i‖₁   τ_eff = Σ_{i∈S_t} w_i ‖a_i‖₁
    c ← c + Σ_{i∈S_t} p_i (c_i⁺ − c_i);  c_i ← c_i⁺ for i in S_t

Choice per axis:
    local        sgd with control = "average" or "gradient"
    aggregation  fednova
    server       sgd

Reduces to: FedNova in the first round, where every control variate is 0; SCAFFOLD with
weighting = "ratio" when every client does equal work.
When to use it: when clients hold very different data, do different amounts of work, and come back often. It sends twice
as many bytes as FedNova.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481; Karimireddy et al. ICML 2020.
arXiv:1910.06378.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("FedNova-VR", scenario={"local": {"epochs": [1, 5]}})


@algorithm
def fednova_vr(
    *,
    control: Literal["average", "gradient"] = "average",
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of FedNova with control variates.

    Args:
        control: how the control variate c_i is updated: "average" of the round's gradients (option II), or the full
            "gradient" at the model that was sent (option I); usually "average".
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", "control": control, **local},
        "aggregation": {"use": "fednova"},
        "server": {"use": "sgd", "lr": server_lr},
    }
