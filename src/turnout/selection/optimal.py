"""Optimal client sampling: all sampled clients train, and clients with a large update are more likely to send it.

Intuition: an upload is worth its cost in proportion to how far it moves the model.

    n clients sampled uniformly from A_t train;  U_i = p_i ‖Δ_i‖;  budget m = Σ_i q_i, the expected number that send
    exact      U_(1) ≤ … ≤ U_(n); l the largest with 0 < m + l − n ≤ Σ_{j≤l} U_(j) / U_(l)
               q_i = (m + l − n) U_i / Σ_{j≤l} U_(j) for the l smallest, 1 for the others
    iterative  q_i = min(1, m U_i / ΣU); then up to j_max times q_i ← min(1, C q_i) where q_i < 1,
               C = (m − n + I) / Σ_{q<1} q over the I clients with q_i < 1, until C ≤ 1: needs only sums
    each client sends with probability q_i, independently;  π_i = q_i · n / |A_t|

With FedAvg's weighting "ht" the step Σ (p_i / π_i) Δ_i has the expectation Σ_{A_t} p_i Δ_i, given the available
clients. Without the factor 1/π_i it is biased towards large updates, so other weightings are rejected.

Reduces to: uniform selection of n when m = n; q_i = m / n when all U_i are equal.
Differs from the paper: p_i are the shares in the objective, not normalised over the n sampled clients, so that the step
is unbiased for the objective; the two agree if all clients are sampled. Clients with an update of zero share the rest
of m.
Reference: Chen, Horváth, Richtárik. Optimal client sampling for federated learning. TMLR 2022. arXiv:2010.13723.
"""

from typing import Annotated, ClassVar, Literal, cast

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Steps, Trained
from turnout.selection.sampling import check_pool
from turnout.selection.uniform import Uniform
from turnout.settings import Clients, Count, When, rule


def exact_probabilities(norms: Floats, budget: float) -> Floats:
    """Return q_i by the closed form, for norms > 0 and a budget below their number."""
    order = np.argsort(norms, kind="stable")
    ranked = norms[order]
    total = np.cumsum(ranked)
    spare = budget + np.arange(1, len(norms) + 1) - len(norms)  # m + l − n
    last = np.flatnonzero((spare > 0) & (spare * ranked <= total))[-1]  # l − 1
    probabilities = np.ones(len(norms))
    probabilities[order[: last + 1]] = np.minimum(spare[last] * ranked[: last + 1] / total[last], 1)
    return probabilities


def iterative_probabilities(norms: Floats, budget: float, iterations: int = 4) -> Floats:
    """Return q_i by repeated rescaling, for norms > 0 and a budget below their number."""
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
    """Return q_i, exact if `iterations` is None; clients with an update of zero share the rest of the budget m."""
    is_positive = norms > 0
    probabilities = np.ones(len(norms))
    if budget >= is_positive.sum():
        probabilities[~is_positive] = min((budget - is_positive.sum()) / max((~is_positive).sum(), 1), 1)
        return probabilities
    probabilities[~is_positive] = 0
    probabilities[is_positive] = (
        exact_probabilities(norms[is_positive], budget)
        if iterations is None
        else iterative_probabilities(norms[is_positive], budget, iterations)
    )
    return probabilities


@rule("selection")
class Optimal:
    """All sampled clients train; the norm of its update decides how likely a client is to send it."""

    is_biased_to_large_updates: ClassVar[bool] = True
    trains_clients: ClassVar[bool] = True
    needs_one_model: ClassVar[bool] = True
    cohort_size: Clients  # expected number m of clients that send their update, 1 to pool_size
    pool_size: Clients  # number n of clients that train, cohort_size or more; two to ten times the cohort is usual
    # how q_i is computed: "exact" by the closed form, "iterative" by an approximation that needs only sums over clients
    probabilities: Literal["exact", "iterative"] = "exact"
    # largest number of iterations j_max of probabilities = "iterative", 1 or more; 4 is usual
    iterations: Annotated[Count, When(probabilities="iterative")] = 4

    def __post_init__(self) -> None:
        check_pool("Optimal", self.cohort_size, self.pool_size)

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return the clients that send; the choice carries their updates, so they do not train again."""
        sample = Uniform(cohort_size=self.pool_size).choose(pool, view, ask)
        if len(sample.clients) == 0:
            return sample
        answer: Trained = yield ask.train(sample.clients, uploads=False)
        clients, finite = answer.clients, np.asarray(answer.finite, dtype=bool)
        prob = np.ones(len(clients))  # a non-finite update is passed on, so that its rejection is recorded
        norms = cast(Tensor, answer.delta).double().norm(dim=1).cpu().numpy() * view.weights[clients]  # U_i
        iterations = self.iterations if self.probabilities == "iterative" else None
        prob[finite] = sending_probabilities(norms[finite], self.cohort_size, iterations)
        sends = view.streams.uniforms("sending", view.round, clients)[:, 0] < prob
        sample_prob = min(self.pool_size / len(pool), 1.0)  # the probability to be among the n clients
        return Choice(
            clients=clients[sends],
            multiplicity=np.ones(int(sends.sum()), dtype=np.int64),
            inclusion_prob=sample_prob * prob[sends],
            trained=answer,
        )
