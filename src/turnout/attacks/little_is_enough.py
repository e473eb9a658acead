"""A little is enough: colluding attackers stand as far from the mean as a defence will still take for chance.

Intuition: changes of honest clients scatter; a shift within the scatter is a shift nobody can object to.

    Δ̃_i = μ − z·σ                  mean and deviation of each coordinate over the honest clients
    z = Φ⁻¹((n − m − s)/(n − m)),   s = ⌊n/2⌋ + 1 − m        n answers, m of them the attackers'

s honest clients lie farther out than the attackers, who are then nearer the middle of a majority; s is at least 1.
z is 0 where the formula asks for less, as with an attacker alone among few; it may be given instead.

Reduces to: everyone sending the honest mean when z = 0.
Differs from the paper: attackers see the honest changes and do not guess them from their own.
Reference: Baruch, Baruch, Goldberg. NeurIPS 2019. arXiv:1902.06156.
"""

from statistics import NormalDist
from typing import ClassVar

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import NonNegative, rule


def largest_shift(answers: int, attackers: int) -> float:
    """Return z: how many deviations off the attackers can stand and be nearer the mean than s honest clients."""
    honest = answers - attackers
    farther = max(answers // 2 + 1 - attackers, 1)  # s
    share = (honest - farther) / max(honest, 1)
    return NormalDist().inv_cdf(share) if share > 0.5 else 0.0


@rule("attack")
class LittleIsEnough(Attackers):
    """The honest mean, shifted within its scatter."""

    colludes: ClassVar[bool] = True  # what one client sends shows in what others send
    shift: NonNegative | None = None  # z; left out, the most a majority rule lets pass

    def forge(self, seen: Seen) -> Tensor:
        """Return μ − z·σ, the same for every attacker."""
        honest, count = seen.honest, int(seen.hostile.sum())
        shift = largest_shift(len(seen.clients), count) if self.shift is None else self.shift
        row = honest.mean(0) - shift * honest.std(0, correction=0)
        return row.expand(count, -1)
