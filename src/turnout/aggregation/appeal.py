"""Appeal: weigh updates by how much the model's next step can win their clients over (MaxFL).

Intuition: a client that the model already serves needs no more, a hopeless one is not worth it; those nearly won count.

    objective   (1/N) Σ_k σ(z_k)           z_k = s (F_k(x) − ρ_k),  σ the logistic function
    q_k       = σ(z_k) (1 − σ(z_k))        the derivative of σ; largest, 1/4, at F_k(x) = ρ_k
    u         = Σ_{k∈S} m_k q_k Δ_k / (Σ_{k∈S} m_k q_k + ε)

The objective is a smooth form of the share of clients that would rather not take part: those whose loss is not below
what they require, ρ_k. That is a number or a list, or with "alone" the loss of a model that client k trained alone:
from the run's first model, for some epochs, measured on the same samples as F_k(x), the client's training samples. It
is found once, when a client is first in a cohort, and kept. F_k(x) is asked for at the round's model; both are on the
round's bill, with the gradients of training alone. With ε > 0 a cohort of clients that are all served or hopeless moves
the model little; without, they would set the whole direction.

The paper's objective counts clients, not samples, so under weighting = "mean" a client drawn m_k times counts m_k
times, and u is a ratio estimator of the direction if all clients are drawn alike. The other weightings put |S| b_k in
the place of m_k, with b_k as in FedAvg: "ratio" counts samples, and "ht" divides by the probability of selection.

Reduces to: FedAvg with weighting = "mean" when all z_k are equal and ε = 0, so also when s = 0; no step as ε → ∞.
Differs from the paper: z_k has a sharpness s, which is 1 in the paper. ρ_k is measured on training samples, not on a
hold-out.
Reference: Cho, Jhunjhunwala, Li, Smith, Joshi. Maximizing global model appeal in federated learning. TMLR 2024.
arXiv:2205.14840.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np

from turnout.aggregation.fedavg import Weighting
from turnout.aggregation.loss_weights import base_weights, cohort_losses, weighted_direction
from turnout.array_types import Floats, Ids
from turnout.errors import Problem
from turnout.protocols import Ask, Combined, Memory, Population, View
from turnout.requests import Steps
from turnout.requirement import LossesAlone, Requirement, is_served
from turnout.rows import Rows
from turnout.settings import Count, NonNegative, Number, Positive, When, rule

MOST = 350.0  # |z| from which q is 0 in double precision


def appeal_weights(losses: Floats, required: Floats, sharpness: float = 1.0) -> Floats:
    """Return q_k = σ(z_k)(1 − σ(z_k)), z_k = s (F_k − ρ_k); it is even in z_k."""
    decay = np.exp(-np.minimum(np.abs(sharpness * (losses - required)), MOST))
    return np.asarray(decay / (1.0 + decay) ** 2)


def known_requirements(memory: Memory, num_clients: int) -> tuple[Floats, Ids]:
    """Return ρ_k of every client, and whether it is known."""
    unknown = {"required": np.zeros(num_clients), "is_known": np.zeros(num_clients, dtype=bool)}
    return memory.get("required", unknown["required"]), memory.get("is_known", unknown["is_known"])


@rule("aggregation")
class Appeal:
    """Weights that are largest for clients that the model nearly serves."""

    # loss ρ_k on its training samples below which the model serves a client: "alone" is the loss of a model that the
    # client trains alone, which is usual; or a number for all clients, or a list with one per client
    requirement: Literal["alone"] | Number | tuple[Number, ...] = "alone"
    # number of epochs for which a client trains alone, 1 or more; 5 to 100 is usual
    epochs: Annotated[Count, When(requirement="alone")] = 5
    # learning rate of the plain SGD with which a client trains alone, above 0; none uses the study's own local solver
    lr: Annotated[Positive | None, When(requirement="alone")] = None
    # sharpness s of the logistic function, the inverse of a temperature, 0 or more; 1 is usual, and 0 gives all clients
    # the same weight
    sharpness: NonNegative = 1.0
    # constant ε that keeps the step short if no client can be won, 0 or more; 1e-6 is usual, and 0 always takes a step
    eps: NonNegative = 1e-6
    # weight of an update before q_k: "mean" gives every draw the same, which is the paper's; "ratio" normalises the
    # data shares p_k over the cohort; "ht" and "ht-fleet" divide p_k by the probability of taking part, as in fedavg
    weighting: Weighting = "mean"

    @property
    def requires(self) -> Requirement:
        """What clients require of the model."""
        return Requirement.of(self.requirement, self.epochs, self.lr)

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the list of losses does not suit the number of clients."""
        yield from self.requires.problems("Appeal", "aggregation", population)

    def combine(self, rows: Rows, memory: Memory, view: View, ask: Ask) -> Steps[Combined]:
        """Ask the cohort for its losses and, once, for what it requires; return the mean weighted by both."""
        facts = rows.facts
        losses = yield from cohort_losses(facts.clients, ask)
        required, kept = yield from self._required(facts.clients, memory, view, ask)
        weights = facts.num_draws * base_weights(facts, self.weighting)
        weights = weights * appeal_weights(losses, required, self.sharpness)
        total = weights.sum() + self.eps
        coefficients = weights / total if total > 0 else np.zeros_like(weights)
        share = float((is_served(losses, required) * facts.multiplicity).sum() / max(facts.num_draws, 1))
        return Combined(
            direction=weighted_direction(rows, coefficients),
            coefficients=coefficients,
            memory=kept,
            metrics={"cohort_appeal": share},
        )

    def _required(self, clients: Ids, memory: Memory, view: View, ask: Ask) -> Steps[tuple[Floats, Memory]]:
        """Return ρ_k of these clients, and what to remember: ρ_k of all that are known, and the first model."""
        num_clients = view.population.num_clients
        if not self.requires.is_alone:
            return self.requires.given(num_clients)[clients], {}
        required, is_known = known_requirements(memory, num_clients)
        start = memory.get("first_model", view.model)
        new = clients[~is_known[clients]]
        if len(new):
            alone: LossesAlone = yield ask.losses_alone(new, self.requires, start)
            required, is_known = required.copy(), is_known.copy()
            required[new], is_known[new] = alone.loss, True
        return required[clients], {"required": required, "is_known": is_known, "first_model": start}
