"""Fed-ET: clients train small models of different architectures, and the server distils a larger one from them.

The server averages the models of each architecture. Then it trains its own model on public inputs without labels,
towards what the clients' models say of them: those that are sure count most, and those that disagree a little.

Round:
    S_t ← K clients of those available, client i with architecture a_i
    for each client i in S_t, in parallel:
        x_i ← x_{a_i};  trains locally;  Δ_i ← x_{a_i} − x_i
    x_a ← x_a − mean of Δ_i over the clients of architecture a
    last layer of the server ← mean of the clients' last layers
    y(x), s_div(x) ← consensus, and mean of those that disagree, weighted by the variance of each client's outputs
    server trains: CE(z(x), y(x)) + λ KL( softmax(s_div(x)) ‖ softmax(z(x)) ) on public x
    last layer of every x_a ← the server's

Choice per axis:
    width        architectures, of a family of models
    aggregation  ensemble-transfer
    server       sgd with lr = 1

Reduces to: FedAvg within one architecture when there are no distillation steps.
When to use it: when devices cannot train the model that the server wants, and public inputs are at hand.
Reference: Cho, Manoel, Joshi, Sim, Dimitriadis. IJCAI 2022. arXiv:2204.12703.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Count, CountOrZero, NonNegative, Positive

EXAMPLE = Example(
    "Fed-ET",
    scenario={
        "data": {"public_samples": 100},
        "model": {
            "use": "family",
            "server": {"use": "mlp", "hidden": [64, 16]},
            "clients": [{"use": "mlp", "hidden": [16]}, {"use": "mlp", "hidden": [24, 16]}],
        },
        "width": {"use": "architectures"},  # FedAvg beside it averages each architecture, and no server's model
    },
)


@algorithm
def fed_et(
    *,
    assign: Literal["fixed", "by-speed", "listed"] = "fixed",
    diversity: NonNegative = 0.05,
    distil_steps: CountOrZero = 128,
    distil_lr: Positive = 5e-3,
    distil_batch_size: Count = 64,
    representation: Literal["last-layer", "none"] = "last-layer",
) -> Sections:
    """Return the sections of Fed-ET.

    Args:
        assign: who has which architecture: "fixed" by chance, "by-speed" of devices, "listed" one for each client.
        diversity: weight λ of the clients that disagree, 0 or more, usually 0.05.
        distil_steps: number of the server's distillation steps in a round, 0 or more, usually 128.
        distil_lr: learning rate of these steps, above 0, usually 0.005.
        distil_batch_size: public samples in each of these steps, 1 or more, usually 64.
        representation: what all models share: their "last-layer", of one shape in all of them, or "none".
    """
    return {
        "width": {"use": "architectures", "assign": assign},
        "aggregation": {
            "use": "ensemble-transfer",
            "diversity": diversity,
            "steps": distil_steps,
            "lr": distil_lr,
            "batch_size": distil_batch_size,
            "representation": representation,
        },
        "server": {"use": "sgd", "lr": 1.0},
    }
