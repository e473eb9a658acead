"""Step: the local learning rate is multiplied by a factor at each milestone.

Intuition: train fast until the loss stops decreasing, then lower the learning rate to converge.

    η_t = η_l · sᵐ         m: number of milestones at or before round t

Reduces to: a constant learning rate without milestones, or with s = 1.
Differs from the paper: some published code lowers the learning rate only in the milestone rounds; here it stays low.
Reference: Wang, Liu, Liang, Joshi, Poor (FedNova). NeurIPS 2020. arXiv:2007.07481.
"""

from bisect import bisect_right
from typing import Annotated

from turnout.errors import ConfigError
from turnout.settings import GIVEN, Count, PositiveShare, When, rule


@rule("local.schedule")
class Step:
    """A lower learning rate from each milestone on."""

    milestones: tuple[Count, ...]  # rounds from which on the learning rate is lowered once more, ascending from 1
    scale: Annotated[PositiveShare, When(milestones=GIVEN)] = 0.1  # factor s at a milestone, above 0 to 1; 0.1 is usual

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(
                f"Step needs milestones that ascend; got {list(self.milestones)}. "
                "Change local.schedule.milestones, for example to [50, 75].",
                setting="local.schedule.milestones",
            )

    def factor(self, round: int) -> float:
        """Return sᵐ."""
        return float(self.scale ** bisect_right(self.milestones, round))
