"""FedRep: every client first fits a head of its own, then the shared representation is trained.

The two phases alternate, so that the representation is trained against heads that suit each client.

Round:
    S_t ← K clients of those available;  x = (φ, h)
    for each client i in S_t, in parallel:
        repeat s times:    h_i ← h_i − η_l ∇_h f_i(φ, h_i; batch)              the representation is frozen
        φ_i ← φ;  repeat τ_i times:  φ_i ← φ_i − η_l ∇_φ f_i(φ_i, h_i; batch)   the head is frozen
        Δ_i ← φ − φ_i;  h_i stays at the client
    φ ← φ − Σ_{i∈S_t} w_i Δ_i
    before it is used: client i uses the shared φ with its own h_i

Choice per axis:
    local        sgd
    personal     layers with keep, order = "kept-first", kept_steps = s
    aggregation  fedavg

Reduces to: FedBABU without fine-tuning when s = 0.
When to use it: when clients share a representation and differ in labels, and heads are cheap to train. It sends less
than FedAvg.
Reference: Collins, Hassani, Mokhtari, Shakkottai. ICML 2021. arXiv:2102.07078.
"""

from turnout.algorithms.algorithm import Sections, Work, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, Positive

EXAMPLE = Example(
    "FedRep", settings={"keep": ["3.*"]}, scenario={"data": {"holdout": 0.25}, "model": {"use": "mlp", "hidden": [32]}}
)


@algorithm
def fedrep(
    *,
    keep: tuple[str, ...],
    kept_steps: Count = 10,
    lr: Positive | None = None,
    epochs: Work | None = None,
    steps: Work | None = None,
    batch_size: Count | None = None,
) -> Sections:
    """Return the sections of FedRep.

    Args:
        keep: names of the parameters that stay at the client, as in the module, where * stands for anything.
        kept_steps: steps s in which only the kept layers are trained, 1 or more, usually 5 to 50.
        lr: learning rate η_l of the clients, above 0, usually 0.01 to 0.1; left out, as the study's [local] has it.
        epochs: local epochs E, 1 or more, or a range drawn per client and round; usually 1 to 5; instead of steps.
        steps: local steps τ, 1 or more, or a range drawn per client and round; usually 5 to 50; instead of epochs.
        batch_size: samples B of a mini-batch, 1 or more, usually 10 to 64; left out, as the study's [local] has it.
    """
    local = given(lr=lr, epochs=epochs, steps=steps, batch_size=batch_size)
    return {
        "local": {"use": "sgd", **local},
        "personal": {"use": "layers", "keep": keep, "order": "kept-first", "kept_steps": kept_steps},
        "aggregation": {"use": "fedavg"},
    }
