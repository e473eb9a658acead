"""Scheme B: unfinished work counts as it is, with the client's share of the data.

Everyone available is asked in every round, and an update counts whether or not its client finished.

Round:
    S_t ← everyone available
    for each client k in S_t, in parallel:
        x_k ← x;  take s_k of the E_k steps asked for;  Δ_k ← x − x_k
    x ← x − Σ_k p_k Δ_k

Choice per axis:
    selection    uniform, everyone available
    aggregation  scheme-b

Reduces to: FedAvg over all clients when everyone is available.
When to use it: when work is interrupted at random and little of it is lost. Clients that do more still move the model
more: if that depends on who they are, prefer scheme C.
Reference: Ruan, Zhang, Liang, Joe-Wong. AISTATS 2021. arXiv:2006.06954.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example

EXAMPLE = Example("Scheme B", scenario={"fleet": {"work": {"use": "stragglers", "prob": 0.5}}, "local": {"epochs": 4}})


@algorithm
def scheme_b() -> Sections:
    """Return the sections of scheme B, which has no settings."""
    return {"selection": {"use": "uniform", "cohort_size": None}, "aggregation": {"use": "scheme-b"}}
