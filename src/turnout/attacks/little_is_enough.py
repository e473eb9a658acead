"""A little is enough: colluding attackers move as far from the honest mean as a defence takes for ordinary variance.

Intuition: honest updates vary; a defence cannot tell a shift within this variance from an honest update.

    Δ̃_i = μ − z·σ                  mean and standard deviation of each coordinate over the honest clients
    z = Φ⁻¹((n − m − s)/(n − m)),   s = ⌊n/2⌋ + 1 − m        n updates, m of them from attackers

s honest clients are farther from the mean than the attackers, so that a majority supports the attackers; s is at least
1. z is 0 if the formula gives less, as with a single attacker among few clients. A setting can replace the formula.

Reduces to: every attacker sending the honest mean when z = 0.
Differs from the paper: attackers see the honest updates; they do not estimate them from their own.
Reference: Baruch, Baruch, Goldberg. NeurIPS 2019. arXiv:1902.06156.
"""

from statistics import NormalDist
from typing import ClassVar

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import NonNegative, rule


def largest_shift(answers: int, attackers: int) -> float:
    """Return z, the largest shift in standard deviations at which s honest clients are farther from the mean."""
    honest = answers - attackers
    num_farther = max(answers // 2 + 1 - attackers, 1)  # s
    share = (honest - num_farther) / max(honest, 1)
    return NormalDist().inv_cdf(share) if share > 0.5 else 0.0


@rule("attack")
class LittleIsEnough(Attackers):
    """The honest mean, shifted within the variance of the honest updates."""

    colludes: ClassVar[bool] = True  # an attacker's update depends on the updates of other clients
    # shift z in standard deviations, 0 or more; none is the largest shift that a majority supports; 0.3 to 1.5 is usual
    shift: NonNegative | None = None

    def forge(self, seen: Seen) -> Tensor:
        """Return μ − z·σ, the same for every attacker."""
        honest, count = seen.honest, int(seen.hostile.sum())
        shift = largest_shift(len(seen.clients), count) if self.shift is None else self.shift
        row = honest.mean(0) - shift * honest.std(0, correction=0)
        return row.expand(count, -1)
