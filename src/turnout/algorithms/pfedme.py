"""pFedMe: each client solves a problem of its own near the shared model, and the shared model follows the solutions.

The shared model minimises the mean of the clients' Moreau envelopes; θ_i, the inner solution, is the client's model.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        w_i ← x;  θ ← x;  for each of τ_i mini-batches:
            K times:  θ ← θ − η_p ( ∇f_i(θ; batch) + λ (θ − w_i) )
            w_i ← w_i − η_l λ (w_i − θ)
        Δ_i ← x − w_i;  θ_i ← θ stays at the client
    x ← x − β Σ_{i∈S_t} w_i Δ_i

Choice per axis:
    local        moreau with strength = λ, inner_steps = K, inner_lr = η_p
    personal     moreau
    aggregation  fedavg
    server       sgd with lr = β

Reduces to: FedAvg with one-step clients of rate η_l when λ → ∞ and the inner problem is solved.
When to use it: when personal models are what counts and K times the local arithmetic can be paid.
Reference: T. Dinh, Tran, Nguyen. NeurIPS 2020. arXiv:2006.08848.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("pFedMe", settings={"strength": 2.0, "inner_lr": 0.1}, scenario={"data": {"holdout": 0.25}})


@algorithm
def pfedme(
    *,
    strength: Positive = 15.0,
    inner_steps: Count = 5,
    inner_lr: Positive = 0.1,
    server_lr: Positive = 1.0,
    lr: Positive = 0.05,
    epochs: Work | None = 1,
    steps: Work | None = None,
    batch_size: Count | None = 20,
) -> Sections:
    """Return the sections of pFedMe.

    Args:
        strength: strength λ of the pull towards the shared model, above 0, usually 15.
        inner_steps: inner steps K on every mini-batch, 1 or more, usually 5.
        inner_lr: learning rate η_p of the inner steps, above 0; inner_lr · strength must be below 2.
        server_lr: learning rate β of the server, above 0, usually 1 to 2.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64.
    """
    local = {"lr": lr, **given(epochs=epochs, steps=steps, batch_size=batch_size)}
    inner = {"strength": strength, "inner_steps": inner_steps, "inner_lr": inner_lr}
    return {
        "local": {"use": "moreau", **inner, **local},
        "personal": {"use": "moreau"},
        "aggregation": {"use": "fedavg"},
        "server": {"use": "sgd", "lr": server_lr},
    }
