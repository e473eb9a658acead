"""Inner product: colluding attackers send the honest mean with its sign turned, small enough to look like one of them.

Intuition: it is enough that the average points a little the wrong way; the length need not stand out.

    Δ̃_i = −ε·(1/|H|) Σ_{j∈H} Δ_j        H: the honest clients that answered

Attackers see what everyone else sends. Where nobody else answers they turn their own mean.

Reduces to: sign-flip with s = ε when all clients are alike.
Reference: Xie, Koyejo, Gupta. Fall of empires. UAI 2019. arXiv:1903.03936.
"""

from typing import ClassVar

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class InnerProduct(Attackers):
    """The honest mean, turned."""

    colludes: ClassVar[bool] = True  # what one client sends shows in what others send
    scale: Positive = 0.5  # ε

    def forge(self, seen: Seen) -> Tensor:
        """Return −ε times the honest mean, the same for every attacker."""
        mean = seen.honest.mean(0)
        return (mean * -self.scale).expand(int(seen.hostile.sum()), -1)
