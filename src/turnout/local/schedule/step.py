"""Step: the local learning rate is cut at each milestone and stays cut.

Intuition: train fast until the loss is level, then lower the rate and let it settle.

    η_t = η_l · sᵐ         m = how many milestones are at or before round t

Reduces to: a constant rate without milestones, or with s = 1.
Differs from the paper: some published code cuts the rate in the milestone rounds alone; here it stays cut.
Reference: Wang, Liu, Liang, Joshi, Poor (FedNova). NeurIPS 2020. arXiv:2007.07481.
"""

from bisect import bisect_right
from dataclasses import dataclass

from turnout.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Cut at milestones."""

    milestones: tuple[int, ...]  # rounds from which on the rate is cut once more, ascending
    scale: float = 0.1  # s

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(set(self.milestones)) or min(self.milestones, default=1) < 1:
            raise ConfigError(
                f"Step needs milestones that ascend from 1 up; got {list(self.milestones)}. "
                "Change local.schedule.milestones, for example to [50, 75]."
            )
        if not 0 < self.scale <= 1:
            raise ConfigError(f"Step needs scale in (0, 1]; got {self.scale}. Change local.schedule.scale.")

    def factor(self, round: int) -> float:
        """Return sᵐ."""
        return float(self.scale ** bisect_right(self.milestones, round))
