"""Low-loss selection: draw a few candidates, ask how they fare, train on those the model already suits.

Intuition: a client with spoilt labels cannot be fitted, so its loss stays high and it is passed over.

    𝒜 = d clients of A_t, drawn without replacement in proportion to p_i
    S = the K of 𝒜 with the smallest L_i ≈ F_i(x);  ties go to the lowest id

The estimates are those of power-of-choice. With `last` a client never heard from has L_i = −∞: it is tried first.

Reduces to: the draw of 𝒜 itself when d = K, as power-of-choice does.
Differs from the paper: named there as a remedy without a full statement; the draw is power-of-choice's.
Reference: Joshi. Slides on heterogeneity-aware federated optimisation; Cho, Wang, Joshi. arXiv:2010.01243.
"""

from typing import Annotated, ClassVar

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Steps
from turnout.selection.candidates import Estimate, candidates, check_estimate, check_pool, each_once, losses_of
from turnout.settings import Clients, Count, When, rule


def easiest(clients: Ids, losses: Floats, cohort_size: int) -> Ids:
    """Return the cohort_size clients with the smallest loss, ascending; ties go to the lowest id, NaN comes last."""
    order = np.lexsort((clients, losses))
    return np.sort(clients[order[:cohort_size]])


@rule("selection")
class LowLoss:
    """Ask a random pool for its losses, train on the clients with the smallest."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # K
    pool_size: Clients  # d
    estimate: Estimate = "full"  # all samples, one mini-batch, or what was last heard
    batch_size: Annotated[Count | None, When(estimate="batch")] = None  # B of estimate = "batch"

    def __post_init__(self) -> None:
        check_pool("LowLoss", self.cohort_size, self.pool_size)
        check_estimate("LowLoss", self.estimate, self.batch_size)

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return the K candidates with the smallest loss; nothing is asked when all candidates are needed."""
        drawn = candidates(pool, self.pool_size, view)
        if len(drawn) <= self.cohort_size:
            return each_once(drawn)
        losses = yield from losses_of(drawn, view, ask, self.estimate, self.batch_size)
        if self.estimate == "last":
            losses = np.where(np.isnan(losses), -np.inf, losses)
        return each_once(easiest(drawn, losses, self.cohort_size))
