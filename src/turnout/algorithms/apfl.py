"""APFL: every client uses a mixture of the shared model and a model of its own.

The share of the own model is fixed or learned: clients with unusual data or many samples lean on their own model, the
others on the shared one.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        α_i ← clip( α_i − η_α ⟨∇f_i(v̄_i; first batch), v_i − x⟩, 0, 1 )        where it is learned
        w_i ← x;  repeat τ_i times, with one mini-batch:
            w_i ← w_i − η_l ∇f_i(w_i; batch)
            v_i ← v_i − η_l α_i ∇f_i( α_i v_i + (1 − α_i) w_i; batch )
        Δ_i ← x − w_i;  v_i and α_i stay at the client
    x ← x − Σ_{i∈S_t} w_i Δ_i

Choice per axis:
    local        sgd
    personal     apfl with mixing = α
    aggregation  fedavg

Reduces to: FedAvg when α = 0, training alone when α = 1.
When to use it: when you do not know how different clients are. Local training costs twice as much.
Reference: Deng, Kamani, Mahdavi. 2020. arXiv:2003.13461.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive, Share

EXAMPLE = Example("APFL", settings={"mixing_lr": 0.1}, scenario={"data": {"holdout": 0.25}, "local": {"epochs": 2}})


@algorithm
def apfl(
    *,
    mixing: Share = 0.5,
    mixing_lr: Positive | None = None,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of APFL.

    Args:
        mixing: share α of the client's own model, 0 to 1; the first value where it is learned; usually 0.5.
        mixing_lr: learning rate η_α of the share, above 0, usually 0.01 to 0.1; left out, α stays as it is.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", **local},
        "personal": {"use": "apfl", "mixing": mixing, **given(mixing_lr=mixing_lr)},
        "aggregation": {"use": "fedavg"},
    }
