"""Local Adagrad: clients run Adagrad in place of SGD, and the server corrects for the different scales they used.

With the joint correction each client sends its update divided by its accumulated preconditioner, and the server puts a
common one back.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  v ← v₀;  C_i ← 0
        repeat τ_i times:  v ← v + g²;  x_i ← x_i − η_l g / (√v + τ_a);  C_i ← C_i + 1 / (√v + τ_a)
        Δ_i ← x − x_i
    none   x ← x − Σ w_i Δ_i          local  x ← x − Σ w_i Δ_i ⊘ C_i
    joint  x ← x − Σ w_i (Δ_i ⊘ C_i) ⊘ Σ w_i (1 ⊘ C_i)

Choice per axis:
    local        adagrad with correction
    aggregation  joint with correction = "joint", else fedavg

Reduces to: FedAvg over the clients' Adagrad updates when every C_i is equal, or when one client answers.
When to use it: when gradients of some parameters are rare or small at the clients. Keep the joint correction: without
it the average leans to clients with small gradients, and "local" changes the scale of the step.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("local Adagrad", settings={"lr": 0.1})


@algorithm
def local_adagrad(
    *,
    correction: Literal["none", "local", "joint"] = "joint",
    lr: Positive = 0.1,
    epochs: Work | None = 1,
    steps: Work | None = None,
    batch_size: Count | None = 20,
    adaptivity: Positive = 1e-3,
) -> Sections:
    """Return the sections of local Adagrad.

    Args:
        correction: what is taken out of an update: "none", the "local" preconditioner, or "joint" with a common one put
            back by the server; usually "joint".
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.3.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; none if steps are given.
        steps: local steps τ, 1 or more, or a range drawn per client and round; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; none for all of a client's samples.
        adaptivity: constant τ_a added to the root, above 0, usually 0.001; larger values adapt less.
    """
    work = given(epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "adagrad", "lr": lr, "correction": correction, "adaptivity": adaptivity, **work},
        "aggregation": {"use": "joint" if correction == "joint" else "fedavg"},
    }
