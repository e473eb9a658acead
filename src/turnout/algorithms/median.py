"""Coordinate-wise median: in every coordinate the server takes the median of the clients' updates.

Attackers that are fewer than half cannot move the median beyond the values that honest clients sent.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    u_j ← median of Δ_{i,j} over i in S_t, for every coordinate j
    x ← x − u

Choice per axis:
    aggregation  median

Reduces to: FedAvg with equal weights when one or two clients answer.
When to use it: when up to half of a cohort may send anything at all, and clients hold similar data. With different data
it leans to the majority: rare labels are forgotten.
Reference: Yin, Chen, Ramchandran, Bartlett. ICML 2018. arXiv:1803.01498.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example

EXAMPLE = Example(
    "coordinate-wise median",
    scenario={"selection": {"cohort_size": 10}, "attack": {"use": "sign-flip", "fraction": 0.2, "scale": 4.0}},
)


@algorithm
def median() -> Sections:
    """Return the sections of the coordinate-wise median, which has no settings."""
    return {"aggregation": {"use": "median"}}
