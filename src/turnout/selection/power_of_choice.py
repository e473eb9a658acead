"""Power-of-choice: draw a few candidates, ask how they fare, train on those that struggle most.

Intuition: a client whose loss is high has the most to teach the model.

    𝒜 = d clients of A_t, drawn without replacement in proportion to p_i
    S = the K of 𝒜 with the largest L_i ≈ F_i(x);  ties go to the lowest id

    full   L_i = F_i(x) on all local samples                         pow-d
    batch  L_i on one mini-batch of min(B, n_i) of its own samples   cpow-d
    last   L_i = its mean training loss when it last took part, +∞ if it never did: explored first   rpow-d

The paper then averages with weight 1/K: set the aggregation's weighting to "mean". With a schedule (adapow-d) d falls
over the rounds, never below K: `halve` halves it every `every` rounds, `switch` sets it to K after `every` rounds.

Reduces to: the draw of 𝒜 itself when d = K, where nothing is asked (uniform without replacement when all p_i are
equal; for unequal p its mean is not unbiased); the K largest losses of all when d = N.
Differs from the paper: the first round follows the rule as well; the authors' code draws it evenly. When few are up
d shrinks to their number.
Reference: Cho, Wang, Joshi. Towards understanding biased client selection. AISTATS 2022. arXiv:2010.01243.
"""

from typing import Annotated, ClassVar, Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import Ask, Choice, View
from turnout.requests import Steps
from turnout.selection.candidates import Estimate, candidates, check_estimate, check_pool, each_once, losses_of
from turnout.settings import Clients, Count, When, rule

Schedule = Literal["constant", "halve", "switch"]


def hardest(clients: Ids, losses: Floats, cohort_size: int) -> Ids:
    """Return the cohort_size clients with the largest loss, ascending; ties go to the lowest id, NaN comes last."""
    order = np.lexsort((clients, -losses))
    return np.sort(clients[order[:cohort_size]])


@rule("selection")
class PowerOfChoice:
    """Ask a random pool for its losses, train on the clients that struggle most."""

    knows_inclusion_prob: ClassVar[bool] = False
    cohort_size: Clients  # K
    pool_size: Clients  # d
    estimate: Estimate = "full"  # pow-d, cpow-d, rpow-d
    batch_size: Annotated[Count | None, When(estimate="batch")] = None  # B of estimate = "batch"
    schedule: Schedule = "constant"  # how d falls over the rounds (adapow-d)
    every: Annotated[Count | None, When(schedule=("halve", "switch"))] = None  # rounds; left out, half of all rounds

    def __post_init__(self) -> None:
        check_pool("PowerOfChoice", self.cohort_size, self.pool_size)
        check_estimate("PowerOfChoice", self.estimate, self.batch_size)

    def choose(self, pool: Ids, view: View, ask: Ask) -> Steps[Choice]:
        """Return the K candidates with the largest loss; nothing is asked when all candidates are needed."""
        drawn = candidates(pool, self.pool_size_at(view.round, view.rounds), view)
        if len(drawn) <= self.cohort_size:
            return each_once(drawn)
        losses = yield from losses_of(drawn, view, ask, self.estimate, self.batch_size)
        if self.estimate == "last":
            losses = np.where(np.isnan(losses), np.inf, losses)
        return each_once(hardest(drawn, losses, self.cohort_size))

    def pool_size_at(self, round: int, rounds: int) -> int:
        """Return d in this round."""
        changes = (round - 1) // (self.every or max(rounds // 2, 1))
        if self.schedule == "constant" or changes == 0:
            return self.pool_size
        if self.schedule == "switch":
            return self.cohort_size
        return max(self.pool_size >> changes, self.cohort_size)
