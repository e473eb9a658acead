"""Power-of-choice: sample a few candidates, request their losses, train those with the largest loss.

Intuition: training on a client with a high loss improves the model most.

    𝒜 = d clients of A_t, sampled without replacement in proportion to p_i
    S = the K of 𝒜 with the largest L_i ≈ F_i(x);  ties go to the lowest id

    full   L_i = F_i(x) on all local samples                         pow-d
    batch  L_i on one mini-batch of min(B, n_i) of its own samples   cpow-d
    last   L_i = mean training loss in its last round, +∞ if it never took part (such clients come first)   rpow-d

The paper then averages with weight 1/K: set the aggregation's weighting to "mean". With a schedule (adapow-d) d
decreases over the rounds, never below K: `halve` halves it every `every` rounds, `switch` sets it to K after `every`
rounds.

Reduces to: the candidate set 𝒜 itself when d = K, without requests (uniform without replacement if all p_i are equal;
for unequal p_i the mean over 𝒜 is biased); the K largest losses of all clients when d = N.
Differs from the paper: the first round follows the rule as well; the authors' code samples it uniformly. If fewer than
d clients are available, all of them are candidates.
Reference: Cho, Wang, Joshi. Towards understanding biased client selection. AISTATS 2022. arXiv:2010.01243.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Steps
from turnout.selection.sampling import Estimate, candidates, check_estimate, check_pool, choice_of, losses_of
from turnout.settings import Clients, Count, When, rule

Schedule = Literal["constant", "halve", "switch"]


def hardest(clients: Ids, losses: Floats, cohort_size: int) -> Ids:
    """Return the cohort_size clients with the largest loss, ascending; ties go to the lowest id, NaN comes last."""
    order = np.lexsort((clients, -losses))
    return np.sort(clients[order[:cohort_size]])


@rule("selection")
class PowerOfChoice:
    """The candidates with the largest loss."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # cohort size K, 1 or more; 10 to 100 is usual
    pool_size: Clients  # number of candidates d, cohort_size or more; two to ten times the cohort size is usual
    # loss estimate: "full" on all local samples (pow-d), "batch" on one mini-batch (cpow-d), "last" the last training
    # loss, at no cost (rpow-d)
    estimate: Estimate = "full"
    # mini-batch size B of estimate = "batch", 1 or more; the local batch size is usual
    batch_size: Annotated[Count | None, When(estimate="batch")] = None
    # how d decreases over the rounds (adapow-d): "constant" not at all, "halve" by half every `every` rounds, "switch"
    # to cohort_size after `every` rounds
    schedule: Schedule = "constant"
    # number of rounds between changes of d, 1 or more; none is half of all rounds
    every: Annotated[Count | None, When(schedule=("halve", "switch"))] = None

    def __post_init__(self) -> None:
        check_pool("PowerOfChoice", self.cohort_size, self.pool_size)
        check_estimate("PowerOfChoice", self.estimate, self.batch_size)

    @property
    def needs_one_model(self) -> bool:
        """Whether clients are asked for their loss at the round's model."""
        return self.estimate != "last"

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return the K candidates with the largest loss; no request is sent if all candidates are needed."""
        candidate_ids = candidates(pool, self.pool_size_at(view.round, view.rounds), view)
        if len(candidate_ids) <= self.cohort_size:
            return choice_of(candidate_ids)
        losses = yield from losses_of(candidate_ids, view, ask, self.estimate, self.batch_size)
        if self.estimate == "last":
            losses = np.where(np.isnan(losses), np.inf, losses)
        return choice_of(hardest(candidate_ids, losses, self.cohort_size))

    def pool_size_at(self, round: int, rounds: int) -> int:
        """Return d in this round."""
        changes = (round - 1) // (self.every or max(rounds // 2, 1))
        if self.schedule == "constant" or changes == 0:
            return self.pool_size
        if self.schedule == "switch":
            return self.cohort_size
        return max(self.pool_size >> changes, self.cohort_size)
