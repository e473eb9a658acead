"""Agnostic: minimise the worst mixture of the clients' losses, with weights that grow where the loss is large.

Intuition: an adversary chooses whose loss counts, and the model is trained against it; it must then serve everybody.

    objective   min_x max_{λ∈simplex} Σ_k λ_k F_k(x)                       = min_x max_k F_k(x)
    u         = Σ_{k∈S} m_k λ_k Δ_k / Σ_{k∈S} m_k λ_k
    λ_k       ← λ_k exp(γ F_k(x)) · (Σ_{j∈S} λ_j) / (Σ_{j∈S} λ_j exp(γ F_j(x)))         for k ∈ S, after u

λ begins with the data shares p_k. A client drawn m_k times counts m_k times in u. The step of λ is exponentiated
gradient ascent, not a projected one: it stays inside the simplex without a projection, so that no client that was heard
once is left out for good, and its size does not depend on N. Under client sampling only those heard are compared with
each other: their total weight stays, and is shared out anew. Adding γ F_k of those heard alone would raise the weight
of whoever takes part most often, whatever its loss, and dividing by the probability of selection would add variance in
the exponent. Clients that are never heard together exchange no weight. F_k(x) is asked for at the round's model, on all
training samples, and is on the round's bill. A weight is never below 1e-12, so that it can rise again.

This is agnostic federated learning, which its authors call AFL. The selection rule `afl` is another algorithm, active
federated learning.

Reduces to: FedAvg with weighting = "ratio" when γ = 0.
Differs from the paper: exponentiated instead of projected ascent, and whole local training instead of one gradient, as
in DRFA (Deng, Kamani, Mahdavi. NeurIPS 2020), whose cohorts are drawn by λ instead.
Reference: Mohri, Sivek, Suresh. Agnostic federated learning. ICML 2019. arXiv:1902.00146.
"""

import numpy as np

from turnout.aggregation.loss_weights import cohort_losses, weighted_direction
from turnout.aggregation.tilted import tilted_weights
from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Combined, Memory, View
from turnout.requests import Steps
from turnout.rows import Rows
from turnout.settings import NonNegative, rule

LEAST_WEIGHT = 1e-12


def followed(mixture: Floats | None, shares: Floats) -> Floats:
    """Return λ over the clients that are in the objective: new ones begin with their share p_k."""
    known = np.zeros_like(shares) if mixture is None else mixture
    weights = np.where(shares > 0, np.where(known > 0, known, shares), 0.0)
    return np.asarray(weights / weights.sum())


def ascended(mixture: Floats, clients: Ids, losses: Floats, rate: float) -> Floats:
    """Return λ after one step on the losses of those heard, whose total weight stays as it is."""
    here = mixture[clients]
    if rate == 0 or here.sum() == 0:
        return mixture
    risen = here.sum() * tilted_weights(here, losses, rate)
    new = mixture.copy()
    new[clients] = np.where(here > 0, np.maximum(risen, LEAST_WEIGHT), 0.0)
    return np.asarray(new / new.sum())


@rule("aggregation")
class Agnostic:
    """Weights on the simplex that rise with the loss."""

    # learning rate γ of the weights, 0 or more; 0 keeps the data shares, and 0.01 to 1 is usual
    rate: NonNegative = 0.1

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Steps[Combined]:
        """Ask the cohort for its losses; return the mean under the weights, and the weights after their step."""
        facts = rows.facts
        losses = yield from cohort_losses(facts.clients, ask)
        mixture = followed(memory.get("mixture"), view.weights)
        heard = mixture[facts.clients] * facts.multiplicity
        coefficients = heard / heard.sum() if heard.sum() > 0 else heard
        return Combined(
            direction=weighted_direction(rows, coefficients),
            coefficients=coefficients,
            memory={"mixture": ascended(mixture, facts.clients, losses, self.rate)},
            metrics={"largest_weight": float(mixture.max())},
        )
