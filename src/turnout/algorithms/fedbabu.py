"""FedBABU: everyone trains the representation against one fixed head; heads are fitted at the end.

A head that never moves keeps clients' representations comparable; each client then fits its own.

Round:
    S_t ← K clients of those available;  x = (φ, h)
    for each client i in S_t, in parallel:
        φ_i ← φ;  repeat τ_i times:  φ_i ← φ_i − η_l ∇_φ f_i(φ_i, h⁰; batch)    h⁰ stays as it was at first
        Δ_i ← φ − φ_i
    φ ← φ − Σ_{i∈S_t} w_i Δ_i
    before it is used: client i takes k steps on its own h from (φ, h⁰)

Choice per axis:
    local        sgd
    personal     layers with keep, order = "kept-frozen", fine_tune = k
    aggregation  fedavg

Reduces to: FedAvg on the representation alone when k = 0.
When to use it: when clients come and go, and each can afford a few steps before it uses the model.
Reference: Oh, Kim, Yun. ICLR 2022. arXiv:2106.06042.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example(
    "FedBABU", settings={"keep": ["3.*"]}, scenario={"data": {"holdout": 0.25}, "model": {"use": "mlp", "hidden": [32]}}
)


@algorithm
def fedbabu(
    *,
    keep: tuple[str, ...],
    tuning_steps: Count = 10,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of FedBABU.

    Args:
        keep: names of the parameters that stay at the client, as in the module, where * stands for anything.
        tuning_steps: steps k of the client's own head before the model is used, 1 or more, usually 5 to 50.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", **local},
        "personal": {"use": "layers", "keep": keep, "order": "kept-frozen", "fine_tune": tuning_steps},
        "aggregation": {"use": "fedavg"},
    }
