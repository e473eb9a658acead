"""Krum: the server follows the one client whose update lies closest to its neighbours.

An attacker's update that lies far from the honest ones is never chosen.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    score_i ← Σ ‖Δ_i − Δ_j‖² over the K − f − 2 updates j nearest to i
    x ← x − Δ_k with k = argmin_i score_i

Choice per axis:
    aggregation  krum

Reduces to: FedAvg when one client answers, or all updates are equal.
When to use it: when up to f < (K − 2)/2 of a cohort may send anything at all and clients hold similar data. It uses one
update a round, so it is noisy: prefer multi-Krum.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import CountOrZero

EXAMPLE = Example(
    "Krum",
    settings={"num_attackers": 2},
    scenario={"selection": {"cohort_size": 10}, "attack": {"use": "sign-flip", "fraction": 0.2, "scale": 4.0}},
)


@algorithm
def krum(*, num_attackers: CountOrZero = 1) -> Sections:
    """Return the sections of Krum.

    Args:
        num_attackers: most attackers f in a cohort, 0 to below (K − 2)/2, usually 10 to 30 % of it.
    """
    return {"aggregation": {"use": "krum", "num_attackers": num_attackers}}
