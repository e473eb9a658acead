"""FedBuff: clients train at their own pace, and the server takes a step whenever its buffer of updates is full.

Intuition: the server does not wait for stragglers; a stale update has less weight.

    client i downloads x^{v_i}; later returns Δ_i = x^{v_i} − x_i;      staleness s = v_now − v_i
    B ← B + w(s) c_i Δ_i;   at K_b arrivals:  x ← x − η_g B;   v ← v + 1
    w(s) = r(s) / r(s̄)
    r(s) = 1                       constant
         = (1 + s)^{−e}            polynomial, e = ½ in the paper
         = 1 if s ≤ cutoff else b  cutoff

s̄ is the staleness with weight 1. Since r(0) = 1, s̄ = 0 leaves the weights unscaled; the authors' code uses s̄ = 1.
c_i are the aggregation rule's coefficients over the buffer: FedAvg with weighting "mean" gives the paper's 1/K_b.

When a client returns its update, another client starts at once. The client that replaces the one whose update fills the
buffer starts after the server step, with the new model.

Reduces to: synchronous FedAvg when buffer size and concurrency equal the cohort size and weights are constant;
clients one after another, with staleness 0, when both are one.
Differs from the paper: a client that returned an update is not selected again before the next server step, so that its
mini-batches stay keyed by (round, client).
Reference: Nguyen et al. Federated learning with buffered asynchronous aggregation. AISTATS 2022. arXiv:2106.06639.
"""

from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.settings import Clients, CountOrZero, NonNegative, Share, When, rule


@rule("asynchrony")
class FedBuff:
    """Buffered asynchronous rounds; a round is one server step."""

    buffer_size: Clients = 10  # number K_b of updates per server step, 1 to concurrency; 10 is usual
    concurrency: Clients = 20  # number of clients that train at the same time, buffer_size or more
    # how the weight w decreases with staleness s: "constant" not at all, "polynomial" as (1 + s)^−e, "cutoff" to b for
    # s above the cutoff
    staleness: Literal["constant", "polynomial", "cutoff"] = "polynomial"
    # exponent e of staleness = "polynomial", 0 to 1; 0 is constant, 0.5 is usual
    exponent: Annotated[Share, When(staleness="polynomial")] = 0.5
    # largest staleness with full weight, 0 or more, for staleness = "cutoff"; 10 is usual
    cutoff: Annotated[CountOrZero, When(staleness="cutoff")] = 10
    # factor b on updates with a staleness above the cutoff, 0 to 1; 0 discards them
    beyond: Annotated[Share, When(staleness="cutoff")] = 0.0
    # staleness s̄ whose weight is scaled to 1, 0 or more; 0 leaves the weights unscaled
    usual_staleness: Annotated[NonNegative, When(staleness=("polynomial", "cutoff"))] = 0.0

    def __post_init__(self) -> None:
        if self.buffer_size > self.concurrency:
            raise ConfigError(
                f"FedBuff needs buffer_size <= concurrency; got {self.buffer_size} and {self.concurrency}. "
                "Change asynchrony.buffer_size or asynchrony.concurrency.",
                setting="asynchrony.buffer_size",
            )
        if self._raw(np.array([self.usual_staleness]))[0] == 0:
            raise ConfigError(
                f"FedBuff needs usual_staleness <= cutoff, or beyond > 0; got {self.usual_staleness} > {self.cutoff}, "
                "where an update has weight 0. Change asynchrony.usual_staleness.",
                setting="asynchrony.usual_staleness",
            )

    def weight(self, staleness: Ids) -> Floats:
        """Return w(s) of each update."""
        return np.asarray(self._raw(staleness) / self._raw(np.array([self.usual_staleness])))

    def _raw(self, staleness: Ids | Floats) -> Floats:
        """Return r(s)."""
        if self.staleness == "polynomial":
            return np.asarray((1.0 + staleness) ** -self.exponent, dtype=np.float64)
        if self.staleness == "cutoff":
            return np.where(staleness <= self.cutoff, 1.0, self.beyond)
        return np.ones(len(staleness))
