"""Norm clipping: the server shortens every update to a largest norm before averaging.

An attacker still chooses the direction of its update, but no longer its length.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    Δ̃_i ← min(1, C / ‖Δ_i‖) Δ_i
    x ← x − Σ_{i∈S_t} w_i Δ̃_i

Choice per axis:
    aggregation  norm-clipping

Reduces to: FedAvg when no update is longer than C.
When to use it: against scaled updates and backdoors by few attackers, when clients hold different data: it throws
nobody away.
Reference: Sun, Kairouz, Suresh, McMahan. Can you really backdoor federated learning? 2019. arXiv:1911.07963.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, Weighting, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Positive

EXAMPLE = Example(
    "norm clipping",
    scenario={"selection": {"cohort_size": 10}, "attack": {"use": "sign-flip", "fraction": 0.2, "scale": 4.0}},
)


@algorithm
def norm_clipping(*, clip_norm: Positive | Literal["median"] = "median", weighting: Weighting = "ratio") -> Sections:
    """Return the sections of norm clipping.

    Args:
        clip_norm: largest norm C of an update, above 0, or "median" for the median norm of the round.
        weighting: weights of the updates: "ratio" by data size, "mean" all equal, "ht" and "ht-fleet" divided by the
            probability of taking part; usually "ratio".
    """
    return {"aggregation": {"use": "norm-clipping", "clip_norm": clip_norm, "weighting": weighting}}
