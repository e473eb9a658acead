"""Tilted: weigh updates by the exponential of the clients' losses (TERM).

Intuition: a positive tilt turns the model towards the clients with the largest losses, a negative one away from them.

    objective   (1/t) log Σ_k p_k exp(t F_k(x))
    c_k       = b_k exp(t F_k(x)) / Σ_{j∈S} b_j exp(t F_j(x))                        u = Σ_{k∈S} c_k Δ_k

b_k is the weight that FedAvg with the same `weighting` gives an update: p_k normalised over the cohort under "ratio",
p_k / π_k under "ht", so that the probability of selection enters before the tilt does. The c_k are then normalised over
the cohort: Σ_k p_k exp(t F_k) over all clients is not known to a sample, and a ratio keeps the length of the step. The
loss F_k(x) is asked for at the round's model, on all training samples, and is on the round's bill. The largest t F_k is
subtracted before the exponential, so that no tilt overflows.

Reduces to: FedAvg with the same weighting when t = 0; the client with the largest loss alone as t → ∞, and the one with
the smallest as t → −∞.
Differs from the paper: its stochastic form keeps a moving average of Σ_k p_k exp(t F_k) over mini-batches; here whole
clients are tilted, and the sum is taken over the cohort.
Reference: Li, Beirami, Sanjabi, Smith. Tilted empirical risk minimization. ICLR 2021. arXiv:2007.01162.
"""

import numpy as np

from turnout.aggregation.fedavg import Weighting
from turnout.aggregation.loss_weights import base_weights, cohort_losses, weighted_direction
from turnout.array_types import Floats
from turnout.protocols import Ask, Combined, Memory, View
from turnout.requests import Steps
from turnout.rows import Rows
from turnout.settings import Number, rule


def tilted_weights(weights: Floats, losses: Floats, tilt: float) -> Floats:
    """Return w_k exp(t F_k) / Σ_j w_j exp(t F_j)."""
    counts = weights > 0
    if not counts.any():
        return weights
    exponent = tilt * losses
    tilted = np.where(counts, weights * np.exp(np.minimum(exponent - exponent[counts].max(), 0.0)), 0.0)
    return np.asarray(tilted / tilted.sum())


@rule("aggregation")
class Tilted:
    """Weights that grow exponentially with the loss."""

    # tilt t, any number: above 0 favours clients with a large loss, below 0 those with a small one; 0 is FedAvg, and
    # 0.1 to 10 is usual for fairness
    tilt: Number = 1.0
    # weight b_k of an update before the tilt: "ratio" normalises the data shares p_k over the cohort, which is usual;
    # "mean" gives every draw the same; "ht" and "ht-fleet" divide p_k by the probability of taking part, as in fedavg
    weighting: Weighting = "ratio"

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Steps[Combined]:
        """Ask the cohort for its losses, and return the tilted mean of the updates."""
        losses = yield from cohort_losses(rows.facts.clients, ask)
        coefficients = tilted_weights(base_weights(rows.facts, self.weighting), losses, self.tilt)
        return Combined(direction=weighted_direction(rows, coefficients), coefficients=coefficients)
