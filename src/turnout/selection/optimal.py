"""Optimal client sampling: everyone drawn trains, and those whose change is large are more likely to send it.

Intuition: an upload is worth its bytes in proportion to how far it moves the model.

    n clients drawn evenly from A_t train;  U_i = p_i ‖Δ_i‖;  budget m = Σ_i q_i, the expected number that send
    exact      U_(1) ≤ … ≤ U_(n); l the largest with 0 < m + l − n ≤ Σ_{j≤l} U_(j) / U_(l)
               q_i = (m + l − n) U_i / Σ_{j≤l} U_(j) for the l smallest, 1 for the others
    iterative  q_i = min(1, m U_i / ΣU); then up to j_max times q_i ← min(1, C q_i) where q_i < 1,
               C = (m − n + I) / Σ_{q<1} q over the I clients with q_i < 1, until C ≤ 1: needs only sums
    each client sends with probability q_i, by its own coin;  π_i = q_i · n / |A_t|

With FedAvg's weighting "ht" the step Σ (p_i / π_i) Δ_i has the mean Σ_{A_t} p_i Δ_i, given who is up. Without
the factor 1/π_i it is biased towards large changes, so other weightings are refused.

Reduces to: uniform selection of n when m = n; q_i = m / n when all U_i are equal.
Differs from the paper: weights are the shares p_i of the objective, not of the drawn n, so that the step is unbiased
for the objective itself; the two agree when everyone is drawn. Clients that did not move share what is left of m.
Reference: Chen, Horváth, Richtárik. Optimal client sampling for federated learning. TMLR 2022. arXiv:2010.13723.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Steps, Trained
from turnout.selection.candidates import check_pool
from turnout.selection.uniform import Uniform
from turnout.settings import Clients, Count, When, rule


def exact_probabilities(norms: Floats, budget: float) -> Floats:
    """Return q_i of the closed form, for norms > 0 and fewer to send than there are."""
    order = np.argsort(norms, kind="stable")
    ranked = norms[order]
    total = np.cumsum(ranked)
    spare = budget + np.arange(1, len(norms) + 1) - len(norms)  # m + l − n
    last = np.flatnonzero((spare > 0) & (spare * ranked <= total))[-1]  # l − 1
    probabilities = np.ones(len(norms))
    probabilities[order[: last + 1]] = np.minimum(spare[last] * ranked[: last + 1] / total[last], 1)
    return probabilities


def iterative_probabilities(norms: Floats, budget: float, iterations: int = 4) -> Floats:
    """Return q_i by rescaling, for norms > 0 and fewer to send than there are."""
    probabilities: Floats = np.minimum(budget * norms / norms.sum(), 1)
    for _ in range(iterations):
        below = probabilities < 1
        mass = probabilities[below].sum()
        scale = (budget - len(norms) + below.sum()) / mass if mass > 0 else 1.0  # C
        if scale <= 1:
            break
        probabilities[below] = np.minimum(scale * probabilities[below], 1)
    return probabilities


def sending_probabilities(norms: Floats, budget: float, iterations: int | None = None) -> Floats:
    """Return q_i, exact unless a number of iterations is given; clients that did not move share what is left of m."""
    moved = norms > 0
    probabilities = np.ones(len(norms))
    if budget >= moved.sum():
        probabilities[~moved] = min((budget - moved.sum()) / max((~moved).sum(), 1), 1)
        return probabilities
    probabilities[~moved] = 0
    probabilities[moved] = (
        exact_probabilities(norms[moved], budget)
        if iterations is None
        else iterative_probabilities(norms[moved], budget, iterations)
    )
    return probabilities


@rule("selection")
class Optimal:
    """Everyone drawn trains; who sends is drawn by the size of the change."""

    cohort_size: Clients  # m: how many are expected to send
    pool_size: Clients  # n: how many train
    probabilities: Literal["exact", "iterative"] = "exact"  # how q_i is found
    iterations: Annotated[Count, When(probabilities="iterative")] = 4  # j_max

    def __post_init__(self) -> None:
        check_pool("Optimal", self.cohort_size, self.pool_size)

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield why the answers could not be combined without bias, or why clients cannot be trained here."""
        weighting = getattr(plan.aggregation, "weighting", "ht")
        if weighting not in ("ht", "ht-fleet"):
            yield (
                f'large changes are sent more often, which only weighting = "ht" undoes; got "{weighting}". '
                'Set aggregation.weighting to "ht".'
            )
        if plan.local.client_state is not None:
            yield (
                "it has clients train before the round, without their control variates. "
                'Set local.control to "none", or select with "uniform".'
            )

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return those of the drawn clients that send; their rows go with the choice and are not asked for again."""
        drawn = Uniform(cohort_size=self.pool_size).choose(pool, view, ask)
        if len(drawn.clients) == 0:
            return drawn
        answer: Trained = yield ask.train(drawn.clients, uploads=False)
        clients, finite = answer.clients, np.asarray(answer.finite, dtype=bool)
        prob = np.ones(len(clients))  # a broken change is passed on, to be rejected on the record
        norms = cast(Tensor, answer.delta).double().norm(dim=1).cpu().numpy() * view.weights[clients]  # U_i
        iterations = self.iterations if self.probabilities == "iterative" else None
        prob[finite] = sending_probabilities(norms[finite], self.cohort_size, iterations)
        sends = view.streams.uniforms("sending", view.round, clients)[:, 0] < prob
        first = min(self.pool_size / len(pool), 1.0)  # the probability to be among those drawn
        return Choice(
            clients=clients[sends],
            multiplicity=np.ones(int(sends.sum()), dtype=np.int64),
            inclusion_prob=first * prob[sends],
            trained=answer,
        )
