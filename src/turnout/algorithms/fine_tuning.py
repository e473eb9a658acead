"""FedAvg with fine-tuning: train one model together, then let every client adapt it before use.

It is the baseline of personal models: whoever keeps more at the clients must do better than a few steps at the end.

Round:
    as FedAvg
    before it is used: client i takes k steps of SGD from x on its own training data, and uses the result

Choice per axis:
    local        sgd
    personal     fine-tune
    aggregation  fedavg

Reduces to: FedAvg when k = 0.
When to use it: first, whenever clients may use different models. It costs nothing in training and sends nothing.
Reference: Fallah, Mokhtari, Ozdaglar. NeurIPS 2020. arXiv:2002.07948 (as a baseline).
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, CountOrZero, Positive

EXAMPLE = Example("FedAvg with fine-tuning", scenario={"data": {"holdout": 0.25}, "local": {"epochs": 2}})


@algorithm
def fine_tuning(
    *,
    tuning_steps: CountOrZero = 5,
    tuning_lr: Positive | None = None,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of FedAvg with fine-tuning.

    Args:
        tuning_steps: steps k before the model is used, 0 or more, usually 1 to 10.
        tuning_lr: learning rate of these steps, above 0; left out, the clients' own.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", **local},
        "personal": {"use": "fine-tune", "steps": tuning_steps, **given(lr=tuning_lr)},
        "aggregation": {"use": "fedavg"},
    }
