"""IFCA: several models, and every client trains the one that fits its own samples best.

Clients are of a few kinds, and one model cannot suit them all. Nobody says who is of which kind: each client finds out
by comparing the models.

Round:
    S_t ← K clients of those available;  the server sends all models θ_1, …, θ_M
    for each client i in S_t, in parallel:
        j_i ← argmin_j F_i(θ_j), on its own training samples
        x_i ← θ_{j_i};  repeat τ_i times: x_i ← x_i − η_l ∇f_i(x_i; batch)
        send j_i and Δ_i ← θ_{j_i} − x_i
    for each model j:  θ_j ← θ_j − mean{ Δ_i : j_i = j };  a model that nobody chose stays

Choice per axis:
    local        sgd
    assignment   lowest-loss with num_models = M
    aggregation  fedavg with weighting = "mean"

Reduces to: FedAvg with weighting = "mean" when M = 1.
When to use it: when clients fall into a few groups with different tasks. A round downloads M models instead of one. The
models must start differently: softmax regression needs zero_init = false.
Reference: Ghosh, Chung, Yin, Ramchandran. NeurIPS 2020. arXiv:2006.04088.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example(
    "IFCA", settings={"num_models": 2}, scenario={"data": {"holdout": 0.25}, "model": {"zero_init": False}}
)


@algorithm
def ifca(
    *,
    num_models: Count,
    compare_batch_size: Count | None = None,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of IFCA.

    Args:
        num_models: number M of models, 1 or more, usually 2 to 5: the number of kinds of clients that are expected.
        compare_batch_size: samples on which a client compares the models, 1 or more; left out, all its samples.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    assignment = {"use": "lowest-loss", "num_models": num_models, **given(batch_size=compare_batch_size)}
    return {
        "local": {"use": "sgd", **local},
        "assignment": assignment,
        "aggregation": {"use": "fedavg", "weighting": "mean"},
    }
