"""Multi-Krum: the server averages the updates that lie closest to their neighbours.

It scores updates as Krum does and keeps the best m, so that less of the honest work is thrown away.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    score_i ← Σ ‖Δ_i − Δ_j‖² over the K − f − 2 updates j nearest to i
    x ← x − (1/m) Σ Δ_i over the m updates with the lowest scores

Choice per axis:
    aggregation  multi-krum

Reduces to: Krum when m = 1; FedAvg with equal weights when f = 0 and m = K.
When to use it: where Krum would be used, unless a single update a round is wanted.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017.
"""

from turnout.algorithms.algorithm import Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Count, CountOrZero

EXAMPLE = Example(
    "multi-Krum",
    settings={"num_attackers": 2},
    scenario={"selection": {"cohort_size": 10}, "attack": {"use": "sign-flip", "fraction": 0.2, "scale": 4.0}},
)


@algorithm
def multi_krum(*, num_attackers: CountOrZero = 1, num_kept: Count | None = None) -> Sections:
    """Return the sections of multi-Krum.

    Args:
        num_attackers: most attackers f in a cohort, 0 to below (K − 2)/2, usually 10 to 30 % of it.
        num_kept: updates m that are averaged, 1 to K − f; left out, K − f.
    """
    return {"aggregation": {"use": "multi-krum", "num_attackers": num_attackers, **given(num_kept=num_kept)}}
