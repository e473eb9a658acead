"""Power-of-choice (pow-d): of d candidates, train on the K clients with the largest loss.

The server sends the model to a random pool of candidates, asks each for its loss, and trains where it is largest.

Round:
    𝒜 ← d clients of those available, drawn without replacement in proportion to p_i
    every i in 𝒜 reports F_i(x)
    S_t ← the K clients of 𝒜 with the largest F_i(x);  each trains locally and returns Δ_i
    x ← x − (1/K) Σ_{i∈S_t} Δ_i

Choice per axis:
    selection    power-of-choice with estimate = "full"
    aggregation  fedavg with weighting = "mean"

Reduces to: drawing K clients in proportion to their data when d = K.
When to use it: to get a good model in few rounds, and a fairer one, when clients hold different data. A large d is
fastest at first and most biased at the end; evaluating d clients costs extra work and one more exchange.
Reference: Cho, Wang, Joshi. Towards understanding biased client selection. AISTATS 2022. arXiv:2010.01243.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Clients, Count

EXAMPLE = Example("power-of-choice", settings={"cohort_size": 5, "pool_size": 10})


@algorithm
def power_of_choice(
    *,
    cohort_size: Clients,
    pool_size: Clients,
    schedule: Literal["constant", "halve", "switch"] = "constant",
    every: Count | None = None,
) -> Sections:
    """Return the sections of power-of-choice.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        pool_size: number d of candidates, K or more, usually 2 to 10 times K.
        schedule: how d falls over the rounds (adapow-d): "constant", "halve" every so many rounds, "switch" to K.
        every: rounds of "halve" and "switch", 1 or more; left out, half of all rounds.
    """
    sizes = {"cohort_size": cohort_size, "pool_size": pool_size}
    return {
        "selection": {
            "use": "power-of-choice",
            "estimate": "full",
            "schedule": schedule,
            **sizes,
            **given(every=every),
        },
        "aggregation": {"use": "fedavg", "weighting": "mean"},
    }
