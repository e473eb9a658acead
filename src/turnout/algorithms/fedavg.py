"""FedAvg: clients train for a few local steps, and the server averages the models they send back.

It is the baseline of the field: every other algorithm here changes one or two of its choices.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ_i times:  x_i ← x_i − η_l ∇f_i(x_i; batch)
        Δ_i ← x − x_i
    x ← x − η_g Σ_{i∈S_t} w_i Δ_i                  w_i = n_i / Σ_{j∈S_t} n_j by default;  η_g = 1 averages the models

Choice per axis:
    local        any solver; sgd if the study names none
    aggregation  fedavg with any weighting: each is a weighted average of the updates
    server       sgd

Reduces to: one step of gradient descent on F when τ_i = 1, batches are full and every client takes part.
When to use it: first, and as the baseline of every comparison. It does well when clients hold similar data and do
similar amounts of work; where they do not, its local steps drift apart and the average leans to those that did more.
Reference: McMahan, Moore, Ramage, Hampson, Agüera y Arcas. AISTATS 2017. arXiv:1602.05629.
"""

from turnout.algorithms.algorithm import Sections, Weighting, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example("FedAvg")


@algorithm
def fedavg(
    *,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
    weighting: Weighting = "ratio",
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of FedAvg.

    Args:
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
        weighting: weights of the updates: "ratio" by data size, "mean" all equal, "ht" and "ht-fleet" divided by the
            probability of taking part; usually "ratio".
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    return {
        "local": given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size),
        "aggregation": {"use": "fedavg", "weighting": weighting},
        "server": {"use": "sgd", "lr": server_lr},
    }
