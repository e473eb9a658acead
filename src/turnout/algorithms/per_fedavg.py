"""Per-FedAvg: train a model that is a good start for one step at every client.

The local gradient is taken after a client's own step, so that the shared model is judged by what clients make of it.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        w ← x;  repeat τ_i times:
            y ← w − a ∇f_i(w; batch 1);  q ← ∇f_i(y; batch 2)
            w ← w − η_l q                                                     first order
            w ← w − η_l ( q − a [∇f_i(w + δq; batch 3) − ∇f_i(w − δq; batch 3)] / 2δ )        Hessian-free
        Δ_i ← x − w
    x ← x − Σ_{i∈S_t} w_i Δ_i
    before it is used: client i takes one step of rate a from x on its own training data

Choice per axis:
    local        meta with inner_lr = a
    personal     fine-tune
    aggregation  fedavg

Reduces to: FedAvg when a → 0.
When to use it: when clients adapt the model themselves, and new clients must do so in one step.
Reference: Fallah, Mokhtari, Ozdaglar. NeurIPS 2020. arXiv:2002.07948.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, CountOrZero, Positive

EXAMPLE = Example("Per-FedAvg", settings={"inner_lr": 0.05}, scenario={"data": {"holdout": 0.25}})


@algorithm
def per_fedavg(
    *,
    inner_lr: Positive = 0.01,
    order: Literal["first", "hessian-free"] = "first",
    tuning_steps: CountOrZero = 1,
    lr: Positive = 0.05,
    epochs: Work | None = 1,
    steps: Work | None = None,
    batch_size: Count | None = 20,
) -> Sections:
    """Return the sections of Per-FedAvg.

    Args:
        inner_lr: learning rate a of a client's own step, above 0, usually 0.001 to 0.1.
        order: "first" leaves the derivative of the inner step out; "hessian-free" takes it from two more gradients.
        tuning_steps: steps before the model is used, 0 or more, usually 1.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64.
    """
    local = {"lr": lr, **given(epochs=epochs, steps=steps, batch_size=batch_size)}
    return {
        "local": {"use": "meta", "inner_lr": inner_lr, "order": order, **local},
        "personal": {"use": "fine-tune", "steps": tuning_steps},
        "aggregation": {"use": "fedavg"},
    }
