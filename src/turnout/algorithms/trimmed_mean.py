"""Trimmed mean: in every coordinate the server drops the largest and smallest values and averages the rest.

It bounds what attackers can do, like the median, and uses more of what honest clients sent.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    for every coordinate j:  drop the k = ⌊fraction K⌋ largest and smallest of Δ_{i,j};  u_j ← mean of the rest
    x ← x − u

Choice per axis:
    aggregation  trimmed-mean

Reduces to: FedAvg with equal weights when fraction = 0; the coordinate-wise median as fraction → ½.
When to use it: when the share of attackers in a cohort has a known bound, and the median throws too much away.
Reference: Yin, Chen, Ramchandran, Bartlett. ICML 2018. arXiv:1803.01498.
"""

from typing import Annotated

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Range

EXAMPLE = Example(
    "trimmed mean",
    settings={"fraction": 0.3},
    scenario={"selection": {"cohort_size": 10}, "attack": {"use": "sign-flip", "fraction": 0.2, "scale": 4.0}},
)


@algorithm
def trimmed_mean(*, fraction: Annotated[float, Range(above=0, below=0.5)] = 0.1) -> Sections:
    """Return the sections of the trimmed mean.

    Args:
        fraction: share of values dropped at each end, between 0 and 0.5, usually the largest share of attackers.
    """
    return {"aggregation": {"use": "trimmed-mean", "fraction": fraction}}
