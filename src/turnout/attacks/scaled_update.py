"""Scaled update: attackers send their own change many times over, so that it outweighs everyone else's.

Intuition: a client that wants the model to suit itself need only shout.

    Δ̃_i = s·Δ_i

Reduces to: an honest client when s = 1.
Reference: Bhagoji, Chakraborty, Mittal, Calo. ICML 2019. arXiv:1811.12470 (explicit boosting).
"""

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class ScaledUpdate(Attackers):
    """What was learned, many times over."""

    scale: Positive = 10.0  # s

    def forge(self, seen: Seen) -> Tensor:
        """Return s·Δ_i."""
        return seen.own.mul_(self.scale)
