"""AdaComm: FedAvg with many local steps at first and fewer as the loss falls.

Far from the optimum long local training saves rounds; near it the drift of local steps is the error that is left.

Round:
    every R rounds:  τ' ← ⌈ τ₀ √(F_t / F_0) ⌉;  τ ← τ' if τ' < τ, else max(1, ⌊γ τ⌋)
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  repeat τ times:  x_i ← x_i − η_l ∇f_i(x_i; batch);  Δ_i ← x − x_i
    x ← x − Σ_{i∈S_t} w_i Δ_i

Choice per axis:
    local        any solver, with effort = adacomm in place of epochs and steps
    aggregation  fedavg
    server       sgd

Reduces to: FedAvg with τ₀ local steps for the first R rounds; FedSGD when τ₀ = 1.
When to use it: when rounds are dear at the start and accuracy counts at the end, and one fixed τ serves only one of
the two.
Reference: Wang, Joshi. Adaptive communication strategies. MLSys 2019. arXiv:1810.08313.
"""

from turnout.algorithms.algorithm import Momentum, Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive, StepCount

EXAMPLE = Example("AdaComm", settings={"start": 20, "every": 5})


@algorithm
def adacomm(
    *,
    start: StepCount = 20,
    every: Count = 10,
    shrink: Momentum = 0.5,
    lr: Positive | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of AdaComm.

    Args:
        start: local steps τ₀ of the first rounds, 1 or more, usually 10 to 100.
        every: rounds R between changes of τ, 1 or more, usually 5 to 20.
        shrink: factor γ on τ when the loss alone would not lower it, between 0 and 1, usually 0.5.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    effort = {"use": "adacomm", "start": start, "every": every, "shrink": shrink}
    return {
        "local": {"effort": effort, "epochs": None, "steps": None, **given(lr=lr, batch_size=batch_size)},
        "aggregation": {"use": "fedavg"},
        "server": {"use": "sgd"},
    }
