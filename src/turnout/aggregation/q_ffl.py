"""q-FFL: weigh updates by a power of the clients' losses, with a step length that follows from the weights (q-FedAvg).

Intuition: a client with twice the loss counts 2^q times as much, and steps become shorter where the objective is steep.

    objective   Σ_k p_k F_k(x)^{q+1} / (q + 1)
    h_k       = q F_k^{q−1} ‖Δ_k/η‖² + F_k^q / η                      how fast the client's gradient may change
    u         = Σ_{k∈S} b_k F_k^q Δ_k/η  /  Σ_{k∈S} b_k h_k

Δ_k = x − x_k is the update of client k, so Δ_k/η stands for its gradient, and u is subtracted: the paper's L (w − w_k)
with L = 1/η. η is the local learning rate of the round, its mean over the cohort where clients differ: one L for all,
as in the paper. b_k is the weight that FedAvg with the same `weighting` gives an update, in which p_k and the
probability of selection are: the paper draws clients by p_k and weighs them alike, which is "mean"; with a uniform
draw, "ratio" stands for the same objective. Any common factor of the b_k cancels. F_k(x) is asked for at the round's
model, on all training samples, and is on the round's bill. It must not be negative.

Reduces to: FedAvg with the same weighting when q = 0.
Differs from the paper: losses below 1e-10 count as 1e-10, as in the authors' code, where 0 has no negative power.
Reference: Li, Sanjabi, Beirami, Smith. Fair resource allocation in federated learning. ICLR 2020. arXiv:1905.10497.
"""

import numpy as np

from turnout.aggregation.fedavg import Weighting
from turnout.aggregation.loss_weights import base_weights, cohort_losses, weighted_direction
from turnout.array_types import Floats, Ids
from turnout.errors import UpdateError
from turnout.protocols import Ask, Combined, Memory, View
from turnout.requests import Steps
from turnout.rows import Rows
from turnout.settings import NonNegative, rule

LEAST_LOSS = 1e-10


def fair_coefficients(weights: Floats, losses: Floats, square_norms: Floats, lr: float, power: float) -> Floats:
    """Return the coefficient of each Δ_k in u.

    Losses are divided by the largest, so that no power overflows; it cancels.
    """
    if power == 0 or not len(losses):
        return weights
    largest = max(float(losses.max()), LEAST_LOSS)
    loss = np.maximum(losses, LEAST_LOSS) / largest
    scaled = weights * loss**power  # b_k F_k^q, up to the factor
    growth = power * weights * loss ** (power - 1.0) * square_norms / (lr * largest)
    return np.asarray(scaled / (growth + scaled).sum())


def check_losses(clients: Ids, losses: Floats) -> None:
    """Raise UpdateError for a negative loss."""
    if (losses < 0).any():
        worst = int(losses.argmin())
        raise UpdateError(
            f"QFFL needs losses of 0 or more, of which it takes powers; client {clients[worst]} has "
            f"{losses[worst]:.4g}. Use a loss that is never negative, or aggregate with tilted."
        )


@rule("aggregation")
class QFFL:
    """Weights that are a power of the loss."""

    # power q of the loss in the weights, 0 or more; 0 is FedAvg, 0.1 to 5 is usual, and a larger q is fairer and slower
    power: NonNegative = 1.0
    # weight b_k of an update before its loss counts: "ratio" normalises the data shares p_k over the cohort, which is
    # usual; "mean" gives every draw the same; "ht" and "ht-fleet" divide p_k by the probability of taking part
    weighting: Weighting = "ratio"

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Steps[Combined]:
        """Ask the cohort for its losses, and return the step that they allow."""
        facts = rows.facts
        losses = yield from cohort_losses(facts.clients, ask)
        check_losses(facts.clients, losses)
        weights = base_weights(facts, self.weighting)
        lr = float((facts.local_lr * facts.multiplicity).sum() / max(facts.num_draws, 1))
        square_norms = rows.delta.double().square().sum(1).cpu().numpy()
        coefficients = fair_coefficients(weights, losses, square_norms, lr, self.power)
        return Combined(direction=weighted_direction(rows, coefficients), coefficients=coefficients)
