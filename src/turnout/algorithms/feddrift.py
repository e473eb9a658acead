"""FedDrift: several models for clients whose tasks change, with a new model for each change and mergers of equal ones.

What is to be learned changes at different clients at different times. A client that no model fits any more starts one
of its own; models that do equally well on each other's samples are merged.

Round:
    at the start of each time step, every client receives new samples;  for each client c:
        a_c ← the best accuracy of all models on its new samples
        if b_c − a_c > δ: c starts a copy of the best model, alone for W time steps;  else: c takes the best model
        b_c ← a_c
    models whose accuracies on each other's samples are within δ′ of each other are merged
    for each model m:  its clients train it on their samples of m so far, and  θ_m ← θ_m − Σ_i w_i Δ_i

Choice per axis:
    local        sgd
    assignment   drift
    aggregation  fedavg with weighting = "ratio"

Reduces to: FedAvg on all samples so far when nobody drifts.
When to use it: when concepts drift, and several clients share each concept. Needs data that change with time.
Reference: Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. AISTATS 2023. arXiv:2206.00799.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, NonNegative, Positive

EXAMPLE = Example(
    "FedDrift",
    scenario={
        "data": {"use": "concept-drift", "time_steps": 3, "rounds_per_step": 10},
        "model": {"use": "mlp", "hidden": [4]},
        "selection": {"cohort_size": "none"},
        "local": {"lr": 0.5},
    },
)


@algorithm
def feddrift(
    *,
    threshold: NonNegative = 0.1,
    merge_threshold: NonNegative | None = None,
    wait: Count = 1,
    num_models: Count = 10,
    compare: Literal["before", "after"] = "before",
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of FedDrift.

    Args:
        threshold: fall δ of the accuracy that is a drift, 0 or more, usually 0.04 to 0.2.
        merge_threshold: distance δ′ up to which models are merged, 0 or more; left out, the threshold.
        wait: time steps W that a new model is trained alone, 1 or more, usually 1.
        num_models: largest number of models, 1 or more; the number of clients is enough.
        compare: what a fall is measured from: the accuracy "before" or "after" the last time step's training.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    more = given(merge_threshold=merge_threshold)
    assignment = {"threshold": threshold, "wait": wait, "num_models": num_models, "compare": compare, **more}
    return {
        "local": {"use": "sgd", **local},
        "assignment": {"use": "drift", "eager": False, **assignment},
        "aggregation": {"use": "fedavg", "weighting": "ratio"},
    }
