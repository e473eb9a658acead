"""LG-FedAvg: every client keeps its own representation, and the last layers are shared.

Clients see different things, and agree on what to conclude: the reverse of FedPer.

Round:
    S_t ← K clients of those available;  x = (φ, h)
    for each client i in S_t, in parallel:
        (φ_i, h_i) ← (φ_i, h);  repeat τ_i times:  (φ_i, h_i) ← (φ_i, h_i) − η_l ∇f_i(φ_i, h_i; batch)
        Δ_i ← h − h_i;  φ_i stays at the client
    h ← h − Σ_{i∈S_t} w_i Δ_i
    before it is used: client i uses the shared h with its own φ_i

Choice per axis:
    local        sgd
    personal     layers with keep = the lower layers, order = "together"
    aggregation  fedavg

Reduces to: FedAvg when nothing is kept; training alone when everything is.
When to use it: when clients' inputs differ: other sensors, other scales. It sends only the last layers.
Reference: Liang et al. 2020. arXiv:2001.01523.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example(
    "LG-FedAvg",
    settings={"keep": ["1.*"]},
    scenario={"data": {"holdout": 0.25}, "model": {"use": "mlp", "hidden": [32]}},
)


@algorithm
def lg_fedavg(
    *,
    keep: tuple[str, ...],
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of LG-FedAvg.

    Args:
        keep: names of the parameters that stay at the client, as in the module, where * stands for anything.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", **local},
        "personal": {"use": "layers", "keep": keep, "order": "together"},
        "aggregation": {"use": "fedavg"},
    }
