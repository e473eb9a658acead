"""Scheme A: only clients that finished all of their local work count.

Everyone available is asked in every round, and the updates of those that stopped early are thrown away.

Round:
    S_t ← everyone available
    for each client k in S_t, in parallel:
        x_k ← x;  take s_k of the E_k steps asked for;  Δ_k ← x − x_k
    K_t ← number of clients with s_k = E_k
    x ← x − Σ_{k: s_k = E_k} (N p_k / K_t) Δ_k     no step when nobody finished

Choice per axis:
    selection    uniform, everyone available
    aggregation  scheme-a

Reduces to: FedAvg over all clients when everyone finishes.
When to use it: as the baseline for interrupted work, or when nearly everyone finishes. If finishing depends on who a
client is, the model leans to those that finish.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example

EXAMPLE = Example("Scheme A", scenario={"fleet": {"work": {"use": "stragglers", "prob": 0.5}}, "local": {"epochs": 4}})


@algorithm
def scheme_a() -> Sections:
    """Return the sections of scheme A, which has no settings."""
    return {"selection": {"use": "uniform", "cohort_size": None}, "aggregation": {"use": "scheme-a"}}
