"""FedDrift-Eager: all clients that drift in the same time step share one new model.

The simpler form of FedDrift, for one new concept at a time: it needs no time in which clients train alone, and merges
nothing.

Round:
    at the start of each time step, every client receives new samples;  for each client c:
        a_c ← the best accuracy of all models on its new samples
        c drifts if b_c − a_c > δ;  else c takes the best model;  b_c ← a_c
    all clients that drift take one new model, a copy of the best one of the first of them
    for each model m:  its clients train it on their samples of m so far, and  θ_m ← θ_m − Σ_i w_i Δ_i

Choice per axis:
    local        sgd
    assignment   drift with eager = true
    aggregation  fedavg with weighting = "ratio"

Reduces to: FedAvg on all samples so far when nobody drifts.
When to use it: when at most one new concept appears in a time step. With several at once use FedDrift.
Reference: Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. AISTATS 2023. arXiv:2206.00799.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, NonNegative, Positive

EXAMPLE = Example(
    "FedDrift-Eager",
    scenario={
        "data": {"use": "concept-drift", "time_steps": 3, "rounds_per_step": 10},
        "model": {"use": "mlp", "hidden": [4]},
        "selection": {"cohort_size": "none"},
        "local": {"lr": 0.5},
    },
)


@algorithm
def feddrift_eager(
    *,
    threshold: NonNegative = 0.1,
    num_models: Count = 10,
    compare: Literal["before", "after"] = "before",
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of FedDrift-Eager.

    Args:
        threshold: fall δ of the accuracy that is a drift, 0 or more, usually 0.04 to 0.2.
        num_models: largest number of models, 1 or more; the number of time steps is enough.
        compare: what a fall is measured from: the accuracy "before" or "after" the last time step's training.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    assignment = {"threshold": threshold, "num_models": num_models, "compare": compare}
    return {
        "local": {"use": "sgd", **local},
        "assignment": {"use": "drift", "eager": True, **assignment},
        "aggregation": {"use": "fedavg", "weighting": "ratio"},
    }
