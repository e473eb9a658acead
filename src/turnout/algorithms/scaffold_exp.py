"""SCAFFOLD-ExP: SCAFFOLD's local steps with FedExP's server learning rate.

Control variates cancel the drift of each client, and the server lengthens its step by how much the updates cancel.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ_i times:  x_i ← x_i − η_l ( ∇f_i(x_i; batch) − c_i + c )
        Δ_i ← x − x_i;  c_i⁺ ← c_i − c + Δ_i / (τ_i η_l)
    u ← (1/|S_t|) Σ_{i∈S_t} Δ_i
    x ← x − max( 1, (1/|S_t|) Σ_{i∈S_t} ‖Δ_i‖² / (2 (‖u‖² + ε)) ) u
    c ← c + Σ_{i∈S_t} p_i (c_i⁺ − c_i);  c_i ← c_i⁺ for i in S_t

Choice per axis:
    local        sgd with control = "average" or "gradient"
    aggregation  fedavg, by default with weighting = "mean"
    server       fedexp

Reduces to: SCAFFOLD as ε → ∞; FedExP in the first round, where every control variate is 0.
When to use it: where SCAFFOLD helps, and you would rather not tune the server rate.
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604; Karimireddy et al. ICML 2020.
arXiv:1910.06378.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Weighting, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, NonNegative, Positive

EXAMPLE = Example("SCAFFOLD-ExP", scenario={"local": {"epochs": 5}})


@algorithm
def scaffold_exp(
    *,
    control: Literal["average", "gradient"] = "average",
    eps: NonNegative = 1e-3,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    weighting: Weighting = "mean",
) -> Sections:
    """Return the sections of SCAFFOLD-ExP.

    Args:
        control: how the control variate c_i is updated: "average" of the round's gradients (option II), or the full
            "gradient" at the model that was sent (option I); usually "average".
        eps: constant ε in the denominator, 0 or more, usually 0.001 to 0.1; larger values keep η_g closer to 1.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
        weighting: weights of the updates: "mean" all equal, "ratio" by data size, "ht" and "ht-fleet" divided by the
            probability of taking part; usually "mean".
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", "control": control, **local},
        "aggregation": {"use": "fedavg", "weighting": weighting},
        "server": {"use": "fedexp", "eps": eps},
    }
