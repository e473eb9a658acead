"""MaxFL: maximise the number of clients that the shared model serves better than they could serve themselves.

Each client requires a loss ρ_k, that of a model it trained alone. Updates count most where the model is about to meet
what the client requires.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_k, and its loss F_k(x) at the round's model
    once per client: ρ_k ← loss, on the same training samples, of a model that k trained alone
    q_k ← σ(z_k) (1 − σ(z_k)),  z_k = s (F_k(x) − ρ_k)
    x ← x − Σ_{k∈S_t} q_k Δ_k / (Σ_{k∈S_t} q_k + ε)

Choice per axis:
    aggregation  appeal

Reduces to: FedAvg with weighting = "mean" when s = 0 and ε = 0.
When to use it: when clients stay only while the model is worth it to them (fleet.availability = "appealed"), and it is
better to serve many well than all a little.
Reference: Cho, Jhunjhunwala, Li, Smith, Joshi. Maximizing global model appeal in federated learning. TMLR 2024.
arXiv:2205.14840.
"""

from turnout.algorithms.algorithm import Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, NonNegative, Positive

EXAMPLE = Example(
    "MaxFL",
    settings={"alone_epochs": 10},
    scenario={"fleet": {"availability": {"use": "appealed", "epochs": 10, "warmup_rounds": 5, "patience": 3}}},
)


@algorithm
def maxfl(
    *,
    alone_epochs: Count = 5,
    alone_lr: Positive | None = None,
    sharpness: NonNegative = 1.0,
    eps: NonNegative = 1e-6,
) -> Sections:
    """Return the sections of MaxFL.

    Args:
        alone_epochs: number of epochs for which a client trains alone, 1 or more, usually 5 to 100.
        alone_lr: learning rate of the plain SGD with which it does, above 0; left out, the study's own local solver.
        sharpness: sharpness s of the logistic function, 0 or more, usually 1; 0 gives all clients the same weight.
        eps: constant ε that keeps the step short if no client can be won, 0 or more, usually 1e-6.
    """
    alone = {"requirement": "alone", "epochs": alone_epochs, **given(lr=alone_lr)}
    return {"aggregation": {"use": "appeal", **alone, "sharpness": sharpness, "eps": eps}}
