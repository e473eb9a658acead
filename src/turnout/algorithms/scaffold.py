"""SCAFFOLD: local SGD with control variates that cancel the drift of each client.

Client and server each remember a gradient estimate, and every local step is corrected by the difference of the two.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ_i times:  x_i ← x_i − η_l ( ∇f_i(x_i; batch) − c_i + c )
        Δ_i ← x − x_i
        c_i⁺ ← c_i − c + Δ_i / (τ_i η_l)           option II ("average");  option I ("gradient"): c_i⁺ ← ∇F_i(x)
    x ← x − η_g (1/|S_t|) Σ_{i∈S_t} Δ_i
    c ← c + Σ_{i∈S_t} p_i (c_i⁺ − c_i);  c_i ← c_i⁺ for i in S_t

Choice per axis:
    local        sgd with control = "average" or "gradient"
    aggregation  fedavg, by default with weighting = "mean"
    server       sgd

Reduces to: FedAvg in the first round, where every control variate is 0; FedSGD when everyone takes one step.
When to use it: when clients hold very different data, do many local steps and come back often enough for their control
variates to stay fresh. It sends twice as many bytes, and each client keeps one vector of the model's size.
Reference: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. ICML 2020. arXiv:1910.06378.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Weighting, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("SCAFFOLD", scenario={"local": {"epochs": 5}})


@algorithm
def scaffold(
    *,
    control: Literal["average", "gradient"] = "average",
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    weighting: Weighting = "mean",
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of SCAFFOLD.

    Args:
        control: how the control variate c_i is updated: "average" of the round's gradients (option II), or the full
            "gradient" at the model that was sent (option I); usually "average".
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
        weighting: weights of the updates: "mean" all equal, "ratio" by data size, "ht" and "ht-fleet" divided by the
            probability of taking part; usually "mean".
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", "control": control, **local},
        "aggregation": {"use": "fedavg", "weighting": weighting},
        "server": {"use": "sgd", "lr": server_lr},
    }
