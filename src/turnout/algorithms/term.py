"""TERM: tilted empirical risk minimisation, which turns towards the clients with large losses, or away from them.

A positive tilt makes the model fairer; a negative one makes it robust to clients whose data is wrong.

Round:
    S_t ← K clients of those available;  each trains locally and returns Δ_k, and its loss F_k(x) at the round's model
    x ← x − Σ_{k∈S_t} b_k exp(t F_k) Δ_k / Σ_{k∈S_t} b_k exp(t F_k)

Choice per axis:
    aggregation  tilted

Reduces to: FedAvg when t = 0.
When to use it: with t > 0 as q-FFL, with losses that may be negative as well; with t < 0 when some clients have wrong
labels.
Reference: Li, Beirami, Sanjabi, Smith. Tilted empirical risk minimization. ICLR 2021. arXiv:2007.01162.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Number

EXAMPLE = Example("TERM", settings={"tilt": 1.0})


@algorithm
def term(*, tilt: Number = 1.0) -> Sections:
    """Return the sections of TERM.

    Args:
        tilt: tilt t, any number, usually 0.1 to 10 for fairness; 0 is FedAvg, and below 0 large losses count less.
    """
    return {"aggregation": {"use": "tilted", "tilt": tilt}}
