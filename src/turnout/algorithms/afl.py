"""AFL: active federated learning draws clients by a softmax of the loss they last reported.

A part of the cohort is drawn evenly, so that clients with a small or unknown loss are heard as well. Agnostic federated
learning, which is called AFL as well, is `agnostic-fl`.

Round:
    v_i ← L_i, the loss that i last reported (√n_i L_i when scaled);  −∞ if it never took part
    drop the share of clients with the smallest v_i
    S_t ← ⌊(1 − ε) K⌋ of the rest, drawn in proportion to exp(α v_i), and others evenly up to K
    each i in S_t trains locally and returns Δ_i and its mean training loss L_i
    x ← x − Σ_{i∈S_t} w_i Δ_i

Choice per axis:
    selection    afl
    aggregation  fedavg

Reduces to: uniform selection when ε = 1, and until somebody has been heard from.
When to use it: to prefer clients with a large loss without any extra exchange, less greedily than rpow-d.
Reference: Goetz, Malik, Bui, Moon, Liu, Kumar. Active federated learning. 2019. arXiv:1909.12641.
"""

from turnout.algorithms.algorithm import Sections, algorithm
from turnout.algorithms.example import Example
from turnout.settings import Clients, NonNegative, Share

EXAMPLE = Example("AFL", settings={"cohort_size": 5, "sharpness": 1.0})


@algorithm
def afl(
    *,
    cohort_size: Clients,
    kept_share: Share = 0.25,
    sharpness: NonNegative = 0.01,
    exploration: Share = 0.1,
    scaled: bool = False,
) -> Sections:
    """Return the sections of AFL.

    Args:
        cohort_size: number K of clients that train in a round, 1 or more, usually 5 to 100.
        kept_share: share of available clients, those with the largest values, that may be drawn; usually 0.25.
        sharpness: factor α in the softmax, 0 or more, usually 0.01 to 1.
        exploration: share ε of the cohort that is drawn evenly, 0 to 1, usually 0.1.
        scaled: whether values are √n_i times the loss, as in the paper; usually false.
    """
    values = {"kept_share": kept_share, "sharpness": sharpness, "scaled": scaled}
    return {
        "selection": {"use": "afl", "cohort_size": cohort_size, "exploration": exploration, **values},
        "aggregation": {"use": "fedavg"},
    }
