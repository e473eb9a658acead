"""DivFL: train on K clients whose gradients represent those of everyone available.

The subset is chosen greedily by facility location on the distances between the clients' gradients.

Round:
    D_ij ← ‖∇F_i(x) − ∇F_j(x)‖                     refreshed for everyone, or only for clients that are chosen
    S_t ← ∅;  repeat K times:  add the client that lowers Σ_i min_{j∈S_t} D_ij most
    each i in S_t trains locally and returns Δ_i
    x ← x − Σ_{i∈S_t} w_i Δ_i

Choice per axis:
    selection    divfl
    aggregation  fedavg

Reduces to: FedAvg over everyone available when K is their number.
When to use it: when many clients hold much the same data, and a small cohort should cover all kinds of client. The
server keeps a gradient per client; refresh = "full" asks everyone for one in every round.
Reference: Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes. ICLR 2022. Code of the authors (melodi-lab/divfl).
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients

EXAMPLE = Example("DivFL", settings={"cohort_size": 5})


@algorithm
def divfl(
    *,
    cohort_size: Clients,
    greedy: Literal["naive", "lazy", "stochastic"] = "naive",
    refresh: Literal["full", "no-overhead"] = "no-overhead",
    weighting: Literal["mean", "ratio"] = "ratio",
) -> Sections:
    """Return the sections of DivFL.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        greedy: how each pick is found: "naive", "lazy" (same result, faster), "stochastic" (looks at a random part).
        refresh: whose gradients are asked for: "full" everyone's in every round, "no-overhead" those chosen.
        weighting: weights of the clients' updates: "ratio" by data size, "mean" all equal; usually "ratio".
    """
    return {
        "selection": {"use": "divfl", "cohort_size": cohort_size, "greedy": greedy, "refresh": refresh},
        "aggregation": {"use": "fedavg", "weighting": weighting},
    }
