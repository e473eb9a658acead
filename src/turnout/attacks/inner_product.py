"""Inner product: colluding attackers send the negative mean of the honest updates, small enough to look honest.

Intuition: it is enough that the average points slightly in the wrong direction; its norm need not stand out.

    Δ̃_i = −ε·(1/|H|) Σ_{j∈H} Δ_j        H: the honest clients that returned an update

Attackers see the updates of all other clients. If no other client returns one, they use the mean of their own updates.

Reduces to: sign-flip with s = ε when all clients have the same update.
Reference: Xie, Koyejo, Gupta. Fall of empires. UAI 2019. arXiv:1903.03936.
"""

from typing import ClassVar

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class InnerProduct(Attackers):
    """The negative honest mean."""

    colludes: ClassVar[bool] = True  # an attacker's update depends on the updates of other clients
    scale: Positive = 0.5  # factor ε on the negative honest mean, greater than 0; 0.1 to 1 is usual

    def forge(self, seen: Seen) -> Tensor:
        """Return −ε times the honest mean, the same for every attacker."""
        mean = seen.honest.mean(0)
        return (mean * -self.scale).expand(int(seen.hostile.sum()), -1)
