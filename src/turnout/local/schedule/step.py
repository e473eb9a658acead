"""Step: the local learning rate is cut at each milestone and stays cut.

Intuition: train fast until the loss is level, then lower the rate and let it settle.

    η_t = η_l · sᵐ         m = how many milestones are at or before round t

Reduces to: a constant rate without milestones, or with s = 1.
Differs from the paper: some published code cuts the rate in the milestone rounds alone; here it stays cut.
Reference: Wang, Liu, Liang, Joshi, Poor (FedNova). NeurIPS 2020. arXiv:2007.07481.
"""

from bisect import bisect_right
from typing import Annotated

from turnout.errors import ConfigError
from turnout.settings import GIVEN, Count, PositiveShare, When, rule


@rule("local.schedule")
class Step:
    """Cut at milestones."""

    milestones: tuple[Count, ...]  # rounds from which on the rate is cut once more, ascending
    scale: Annotated[PositiveShare, When(milestones=GIVEN)] = 0.1  # s

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigError(
                f"Step needs milestones that ascend; got {list(self.milestones)}. "
                "Change local.schedule.milestones, for example to [50, 75]."
            )

    def factor(self, round: int) -> float:
        """Return sᵐ."""
        return float(self.scale ** bisect_right(self.milestones, round))
