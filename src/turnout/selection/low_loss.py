"""Low-loss selection: sample a few candidates, request their losses, train those with the smallest loss.

Intuition: the model cannot fit a client with wrong labels, so its loss stays high and it is not selected.

    𝒜 = d clients of A_t, sampled without replacement in proportion to p_i
    S = the K of 𝒜 with the smallest L_i ≈ F_i(x);  ties go to the lowest id

The loss estimates are those of power-of-choice. With `last` a client that never took part has L_i = −∞ and comes first.

Reduces to: the candidate set 𝒜 itself when d = K, as power-of-choice does.
Differs from the paper: the source names this remedy without stating it in full; the candidates are power-of-choice's.
Reference: Joshi. Slides on heterogeneity-aware federated optimisation; Cho, Wang, Joshi. arXiv:2010.01243.
"""

from typing import Annotated, ClassVar

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Steps
from turnout.selection.sampling import Estimate, candidates, check_estimate, check_pool, choice_of, losses_of
from turnout.settings import Clients, Count, When, rule


def easiest(clients: Ids, losses: Floats, cohort_size: int) -> Ids:
    """Return the cohort_size clients with the smallest loss, ascending; ties go to the lowest id, NaN comes last."""
    order = np.lexsort((clients, losses))
    return np.sort(clients[order[:cohort_size]])


@rule("selection")
class LowLoss:
    """The candidates with the smallest loss."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # cohort size K, 1 or more; 10 to 100 is usual
    pool_size: Clients  # number of candidates d, cohort_size or more; twice the cohort size is usual
    # loss estimate: "full" on all local samples, "batch" on one mini-batch, "last" the last training loss, at no cost
    estimate: Estimate = "full"
    # mini-batch size B of estimate = "batch", 1 or more; the local batch size is usual
    batch_size: Annotated[Count | None, When(estimate="batch")] = None

    def __post_init__(self) -> None:
        check_pool("LowLoss", self.cohort_size, self.pool_size)
        check_estimate("LowLoss", self.estimate, self.batch_size)

    @property
    def needs_one_model(self) -> bool:
        """Whether clients are asked for their loss at the round's model."""
        return self.estimate != "last"

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return the K candidates with the smallest loss; no request is sent if all candidates are needed."""
        candidate_ids = candidates(pool, self.pool_size, view)
        if len(candidate_ids) <= self.cohort_size:
            return choice_of(candidate_ids)
        losses = yield from losses_of(candidate_ids, view, ask, self.estimate, self.batch_size)
        if self.estimate == "last":
            losses = np.where(np.isnan(losses), -np.inf, losses)
        return choice_of(easiest(candidate_ids, losses, self.cohort_size))
