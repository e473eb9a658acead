"""Sign flip: attackers send the negative of their update, so that the loss increases.

Intuition: the attacker asks for the opposite of what it learned.

    Δ̃_i = −s·Δ_i

If all n clients have the same update, the mean reverses its direction as soon as s·m > n − m, for m attackers.

Reduces to: inner-product with ε = s when all clients have the same update.
Reference: Li, Xu, Chen, Giannakis, Ling. RSA. AAAI 2019. arXiv:1811.03761.
"""

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class SignFlip(Attackers):
    """The negative of the attacker's own update."""

    scale: Positive = 1.0  # factor s on the negative update, greater than 0; 1 is usual

    def forge(self, seen: Seen) -> Tensor:
        """Return −s·Δ_i."""
        return seen.own.mul_(-self.scale)
