"""DP-FedAvg: the server clips every update to one norm and adds Gaussian noise to the sum.

This gives client-level differential privacy: the final model says little about whether one client took part.

Round:
    S_t ← K clients of those available, drawn at random;  each trains locally and returns Δ_i
    Δ̃_i ← min(1, C / ‖Δ_i‖) Δ_i
    x ← x − (1/K) ( Σ_{i∈S_t} Δ̃_i + z C ξ ),  ξ ~ N(0, I);  the journal records ε for the given δ

Choice per axis:
    selection    uniform
    aggregation  private with sampling = "fixed"

Reduces to: FedAvg with equal weights when z = 0, C = ∞ and K clients answer.
When to use it: when the model will be published and a client's data must not show in it. The noise costs accuracy
unless cohorts are large: use as many clients a round as there are.
Reference: McMahan, Ramage, Talwar, Zhang. ICLR 2018. arXiv:1710.06963.
"""

from typing import Annotated

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients, NonNegative, Positive, Range

EXAMPLE = Example(
    "DP-FedAvg",
    settings={"cohort_size": 10, "clip_norm": 1.0, "noise_multiplier": 0.3},
    scenario={"selection": {"cohort_size": 10}},
)


@algorithm
def dp_fedavg(
    *,
    cohort_size: Clients,
    clip_norm: Positive,
    noise_multiplier: NonNegative,
    delta: Annotated[float, Range(above=0, below=1)] = 1e-5,
) -> Sections:
    """Return the sections of DP-FedAvg.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        clip_norm: largest norm C of an update, above 0, usually the median norm of updates without noise.
        noise_multiplier: noise z on the sum in units of C, 0 or more, usually 0.3 to 2.
        delta: probability δ with which the guarantee may fail, between 0 and 1, usually below 1/N.
    """
    noise = {"clip_norm": clip_norm, "noise_multiplier": noise_multiplier, "delta": delta}
    return {
        "selection": {"use": "uniform", "cohort_size": cohort_size},
        "aggregation": {"use": "private", "sampling": "fixed", "cohort_size": cohort_size, **noise},
    }
