"""FedBuff: clients work at their own pace, and the server takes a step whenever its buffer of updates is full.

Nobody waits for the slowest client; an update that was computed from an old model counts for less.

Round:
    a fixed number of clients train at any time, each from the model x^{v_i} it downloaded
    on an update Δ_i = x^{v_i} − x_i of staleness s = v − v_i:  B ← B + w(s) Δ_i;  another client starts
    at K_b updates:  x ← x − η_g B / K_b;  v ← v + 1;  B ← 0
    w(s) = (1 + s)^{−e}                            or 1 ("constant"), or 0 beyond a staleness ("cutoff")

Choice per axis:
    asynchrony   fedbuff
    aggregation  fedavg with weighting = "mean"
    server       sgd

Reduces to: FedAvg with equal weights when buffer and concurrency are the whole cohort and weights are constant.
When to use it: when clients differ much in speed and time to accuracy counts. Needs fleet.clock. Fast clients take
part more often than slow ones, so the model leans to them.
Reference: Nguyen et al. Federated learning with buffered asynchronous aggregation. AISTATS 2022. arXiv:2106.06639.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients, Positive

EXAMPLE = Example(
    "FedBuff",
    settings={"buffer_size": 3, "concurrency": 6},
    scenario={"fleet": {"clock": {"use": "deadline", "seconds_per_step": {"median": 0.1, "sigma": 1.0}}}},
)


@algorithm
def fedbuff(
    *,
    buffer_size: Clients = 10,
    concurrency: Clients = 20,
    staleness: Literal["constant", "polynomial", "cutoff"] = "polynomial",
    server_lr: Positive = 1.0,
) -> Sections:
    """Return the sections of FedBuff.

    Args:
        buffer_size: updates K_b in a full buffer, 1 or more, usually 10.
        concurrency: clients that train at any time, K_b or more, usually 2 to 10 times K_b.
        staleness: how the weight w falls with staleness s: "polynomial" (1 + s)^{−½}, "constant", or "cutoff".
        server_lr: learning rate η_g of the server, above 0, usually 1.
    """
    return {
        "asynchrony": {
            "use": "fedbuff",
            "buffer_size": buffer_size,
            "concurrency": concurrency,
            "staleness": staleness,
        },
        "aggregation": {"use": "fedavg", "weighting": "mean"},
        "server": {"use": "sgd", "lr": server_lr},
    }
