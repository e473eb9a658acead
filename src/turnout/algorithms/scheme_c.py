"""Scheme C: unfinished work is scaled up to what was asked for.

Everyone available is asked in every round, and an update counts as if its client had gone on in the same way.

Round:
    S_t ← everyone available
    for each client k in S_t, in parallel:
        x_k ← x;  take s_k of the E_k steps asked for;  Δ_k ← x − x_k
    x ← x − Σ_{k: s_k > 0} (E_k / s_k) p_k Δ_k

Choice per axis:
    selection    uniform, everyone available
    aggregation  scheme-c

Reduces to: FedAvg over all clients when everyone finishes; FedNova with τ_eff = E when all are asked for E steps.
When to use it: when clients are interrupted, how far they get depends on who they are, and the objective must stay
theirs by data. Very short work is scaled up much and adds noise.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example

EXAMPLE = Example("Scheme C", scenario={"fleet": {"work": {"use": "stragglers", "prob": 0.5}}, "local": {"epochs": 4}})


@algorithm
def scheme_c() -> Sections:
    """Return the sections of scheme C, which has no settings."""
    return {"selection": {"use": "uniform", "cohort_size": None}, "aggregation": {"use": "scheme-c"}}
