"""FedBuff: clients work at their own pace, and the server steps whenever its buffer is full.

Intuition: nobody waits for the slowest; an answer that comes late counts for less.

    client i downloads x^{v_i}; later returns Δ_i = x^{v_i} − x_i;      staleness s = v_now − v_i
    B ← B + w(s) c_i Δ_i;   at K_b arrivals:  x ← x − η_g B;   v ← v + 1
    w(s) = r(s) / r(s̄)
    r(s) = 1                       constant
         = (1 + s)^{−e}            polynomial, e = ½ in the paper
         = 1 if s ≤ cutoff else b  cutoff

s̄ is the staleness that counts as one: r(0) = 1, so that with s̄ = 0 weights are as they are (the authors' code has 1).
c_i are the aggregation rule's coefficients over the buffer: FedAvg with weighting "mean" gives the paper's 1/K_b.

Whoever answers is replaced at once; the place of the answer that fills the buffer is taken after the server step, with
the new model.

Reduces to: synchronous FedAvg when the buffer and the concurrency are the whole cohort and weights are constant;
clients one after another, with staleness 0, when both are one.
Differs from the paper: a client that answered is not asked again before the next server step, so that its
mini-batches stay keyed by (round, client).
Reference: Nguyen et al. Federated learning with buffered asynchronous aggregation. AISTATS 2022. arXiv:2106.06639.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.settings import Clients, CountOrZero, NonNegative, Share, When, rule


@rule("asynchrony")
class FedBuff:
    """Buffered asynchronous rounds; a round is one server step."""

    buffer_size: Clients = 10  # K_b
    concurrency: Clients = 20  # clients at work at any time
    staleness: Literal["constant", "polynomial", "cutoff"] = "polynomial"  # how w falls with s
    exponent: Annotated[Share, When(staleness="polynomial")] = 0.5  # e
    cutoff: Annotated[CountOrZero, When(staleness="cutoff")] = 10  # the staleness up to which w = 1
    beyond: Annotated[Share, When(staleness="cutoff")] = 0.0  # b: what an answer older than the cutoff counts
    usual_staleness: Annotated[NonNegative, When(staleness=("polynomial", "cutoff"))] = 0.0  # s̄: w is 1 here

    def __post_init__(self) -> None:
        if self.buffer_size > self.concurrency:
            raise ConfigError(
                f"FedBuff needs buffer_size <= concurrency; got {self.buffer_size} and {self.concurrency}. "
                "Change asynchrony.buffer_size or asynchrony.concurrency."
            )
        if self._raw(np.array([self.usual_staleness]))[0] == 0:
            raise ConfigError(
                f"FedBuff needs usual_staleness <= cutoff, or beyond > 0; got {self.usual_staleness} > {self.cutoff}, "
                "where an answer counts nothing. Change asynchrony.usual_staleness."
            )

    def weight(self, staleness: Ids) -> Floats:
        """Return w(s) of each answer."""
        return np.asarray(self._raw(staleness) / self._raw(np.array([self.usual_staleness])))

    def _raw(self, staleness: Ids | Floats) -> Floats:
        """Return r(s)."""
        if self.staleness == "polynomial":
            return np.asarray((1.0 + staleness) ** -self.exponent, dtype=np.float64)
        if self.staleness == "cutoff":
            return np.where(staleness <= self.cutoff, 1.0, self.beyond)
        return np.ones(len(staleness))

    def objections(self, plan: Any) -> Iterator[str]:
        """Yield what does not go with it."""
        if plan.fleet.clock is None:
            yield 'clients need a pace of their own. Set fleet.clock, for example { use = "deadline" }.'
        cohort = getattr(plan.selection, "cohort_size", None)
        if cohort is not None and cohort <= self.buffer_size < self.concurrency:
            yield (
                f"{cohort} asked at a server step cannot fill a buffer of {self.buffer_size} before the last of them "
                f"is back, so the server would wait for everyone and never have {self.concurrency} at work. "
                "Set selection.cohort_size above asynchrony.buffer_size, or leave it out."
            )
        if plan.local.client_state is not None:
            yield 'controls are refreshed in rounds that everyone shares. Set local.control = "none".'
        if hasattr(getattr(plan.local, "effort", None), "observe"):
            yield "work that follows the loss changes in rounds that everyone shares. Set local.steps or local.epochs."
        if getattr(plan.aggregation, "weighting", None) in ("ht", "ht-fleet"):
            yield (
                "answers come in when they are ready, and nobody knows how likely each was to be in a buffer. "
                'Set aggregation.weighting = "mean".'
            )
        if type(plan.filtering).__name__ != "Everyone":
            yield "a filter looks at a whole round. Leave filtering out."
        if plan.fleet.membership is not None or plan.assist is not None:
            yield "arrivals, departures and server rounds happen between rounds that everyone shares. Leave them out."
