"""Ditto: FedAvg, and beside it a model of its own for every client, pulled towards the shared one.

The shared model is trained as ever. Each client also trains v_i, which it keeps and uses, and which may not go far from
the shared model.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ_i times, with the same mini-batch in both lines:
            v_i ← v_i − η_p ( ∇f_i(v_i; batch) + λ (v_i − x) )
            x_i ← x_i − η_l ∇f_i(x_i; batch)
        Δ_i ← x − x_i;  v_i stays at the client
    x ← x − Σ_{i∈S_t} w_i Δ_i

Choice per axis:
    local        sgd
    personal     ditto with strength = λ
    aggregation  fedavg

Reduces to: training alone when λ = 0; the shared path is FedAvg's for every λ.
When to use it: when clients' tasks differ, and the shared model must stay as it is. Local training costs twice as much.
Reference: Li, Hu, Beirami, Smith. ICML 2021. arXiv:2012.04221.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, NonNegative, Positive

EXAMPLE = Example("Ditto", scenario={"data": {"holdout": 0.25}, "local": {"epochs": 2}})


@algorithm
def ditto(
    *,
    strength: NonNegative = 1.0,
    personal_lr: Positive | None = None,
    order: Literal["together", "after"] = "together",
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of Ditto.

    Args:
        strength: strength λ of the pull towards the shared model, 0 or more, usually 0.1 to 2.
        personal_lr: learning rate η_p of the personal steps, above 0; left out, the clients' own.
        order: personal steps "together" with the shared ones, or 10 of them "after" these.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", **local},
        "personal": {"use": "ditto", "strength": strength, "order": order, **given(lr=personal_lr)},
        "aggregation": {"use": "fedavg"},
    }
