"""Oort: prefer clients with a large loss that do not hold the round up, and keep exploring new ones.

The utility of a client is its data size times its last loss, discounted when it is slower than a preferred time.

Round:
    Util_i ← (n_i L_i + √(0.1 ln t / t_i)) (T / s_i)^α, the last factor only where s_i > T
    S_t ← ⌊ε_t K⌋ clients never heard from, and the rest drawn in proportion to Util_i from the best
    each i in S_t trains locally and returns Δ_i and its mean training loss L_i
    x ← x − Σ_{i∈S_t} w_i Δ_i;  ε_{t+1} ← max(decay ε_t, least)

Choice per axis:
    selection    oort
    aggregation  fedavg

Reduces to: uniform selection until somebody has been heard from, when preferred_seconds is left out.
When to use it: with large fleets of devices of different speed, when time to accuracy counts. Give the study a clock
and preferred_seconds; without them only loss and data size count.
Reference: Lai, Zhu, Madhyastha, Chowdhury. Oort. OSDI 2021. arXiv:2010.06081.
"""

from turnout.algorithms.algorithm import Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Clients, NonNegative, Positive, Share

EXAMPLE = Example(
    "Oort",
    settings={"cohort_size": 5, "preferred_seconds": 3.0},
    scenario={"fleet": {"clock": {"use": "deadline", "seconds_per_step": {"median": 0.1, "sigma": 1.0}}}},
)


@algorithm
def oort(
    *,
    cohort_size: Clients,
    exploration: Share = 0.9,
    exploration_decay: Share = 0.98,
    least_exploration: Share = 0.2,
    preferred_seconds: Positive | None = None,
    slow_penalty: NonNegative = 2.0,
) -> Sections:
    """Return the sections of Oort.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        exploration: share ε of the cohort for clients never heard from in the first round, 0 to 1, usually 0.9.
        exploration_decay: factor on ε after each round, 0 to 1, usually 0.98.
        least_exploration: smallest ε, 0 to 1, usually 0.2.
        preferred_seconds: time T that a client may take without a penalty, above 0; needs fleet.clock.
        slow_penalty: exponent α of the penalty for slower clients, 0 or more, usually 2.
    """
    exploring = {"exploration": exploration, "exploration_decay": exploration_decay}
    return {
        "selection": {
            "use": "oort",
            "cohort_size": cohort_size,
            **exploring,
            "least_exploration": least_exploration,
            "slow_penalty": slow_penalty,
            **given(preferred_seconds=preferred_seconds),
        },
        "aggregation": {"use": "fedavg"},
    }
