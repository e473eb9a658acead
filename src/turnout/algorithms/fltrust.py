"""FLTrust: the server trains on a few samples of its own and trusts clients by how far they agree with it.

Updates that point away from the server's own update count nothing, and all others are given its length.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_i
    Δ_0 ← the server's own update on its samples, by the same local training
    T_i ← max(0, cos(Δ_i, Δ_0))
    x ← x − Σ_{i∈S_t} T_i (‖Δ_0‖ / ‖Δ_i‖) Δ_i / Σ_{i∈S_t} T_i

Choice per axis:
    aggregation  fltrust

Reduces to: the server's own step when every update is a positive multiple of Δ_0.
When to use it: when even a majority of clients may attack, and the server can hold a small clean set of about 100
samples of all kinds.
Reference: Cao, Fang, Liu, Gong. NDSS 2021. arXiv:2012.13995.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example

EXAMPLE = Example(
    "FLTrust",
    scenario={
        "data": {"server_samples": 50},
        "selection": {"cohort_size": 10},
        "attack": {"use": "sign-flip", "fraction": 0.4, "scale": 4.0},
    },
)


@algorithm
def fltrust() -> Sections:
    """Return the sections of FLTrust, which has no settings."""
    return {"aggregation": {"use": "fltrust"}}
