"""FilFL: before selection, keep the clients whose averaged model does best on a small validation set.

Every few rounds everyone considered trains once, and a greedy search decides whom to keep until the next time.

Round:
    every h rounds, and when other clients are available:
        every considered client trains from x → x_i;  X ← ∅;  Y ← all considered
        for u in random order:  a ← R(X∪{u}) − R(X);  b ← R(Y∖{u}) − R(Y)
            accept u into X if a > b (or at random), else remove it from Y
    S_t ← K clients of X;  each trains locally and returns Δ_i
    x ← x − (1/|S_t|) Σ_{i∈S_t} Δ_i                R(S) = C₀ − F_V(average model of S)

Choice per axis:
    filtering    greedy
    aggregation  fedavg with weighting = "mean"

Reduces to: the same study without a filter when everyone is accepted.
When to use it: when some clients harm the model (wrong labels, extreme skew) and the server holds a small, clean
validation set. Filtering rounds train everyone considered, so they are dear.
Reference: Fourati, Kharrat, Aggarwal, Alouini, Canini. FilFL. ECAI 2024. arXiv:2302.06599.
"""

from typing import Literal

from turnout.algorithms.algorithm import Sections, algorithm, given
from turnout.algorithms.example import Example
from turnout.settings import Clients, Count

EXAMPLE = Example("FilFL", scenario={"data": {"server_samples": 50}, "attack": {"use": "label-flip", "fraction": 0.3}})


@algorithm
def filfl(
    *,
    mode: Literal["deterministic", "randomised"] = "deterministic",
    every: Count = 5,
    most: Clients | None = None,
    on: Literal["server", "client"] = "server",
) -> Sections:
    """Return the sections of FilFL.

    Args:
        mode: acceptance χ of a client: "deterministic" if a > b, "randomised" with probability a⁺/(a⁺+b⁺).
        every: rounds h between filtering rounds, 1 or more, usually 5.
        most: largest number n of clients considered, 1 or more; left out, everyone available.
        on: validation set V: "server" for data.server_samples, "client" for the hold-out of one client.
    """
    return {
        "filtering": {"use": "greedy", "mode": mode, "every": every, "on": on, **given(most=most)},
        "aggregation": {"use": "fedavg", "weighting": "mean"},
    }
