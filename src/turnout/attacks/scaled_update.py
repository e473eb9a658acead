"""Scaled update: attackers multiply their own update, so that it dominates the average.

Intuition: a client that wants a model for its own data only needs a larger update.

    Δ̃_i = s·Δ_i

Reduces to: an honest client when s = 1.
Reference: Bhagoji, Chakraborty, Mittal, Calo. ICML 2019. arXiv:1811.12470 (explicit boosting).
"""

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class ScaledUpdate(Attackers):
    """The attacker's own update, multiplied."""

    scale: Positive = 10.0  # factor s on the attacker's own update, greater than 0; 1 is honest, 10 is usual

    def forge(self, seen: Seen) -> Tensor:
        """Return s·Δ_i."""
        return seen.own.mul_(self.scale)
