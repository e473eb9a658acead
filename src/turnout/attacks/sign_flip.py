"""Sign flip: attackers send their change with its sign turned, so that the model climbs.

Intuition: whatever a client learned, it asks for the opposite.

    Δ̃_i = −s·Δ_i

A mean of n clients who are alike moves backwards as soon as s·m > n − m, where m of them attack.

Reduces to: inner-product with ε = s when all clients are alike.
Reference: Li, Xu, Chen, Giannakis, Ling. RSA. AAAI 2019. arXiv:1811.03761.
"""

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class SignFlip(Attackers):
    """The opposite of what was learned."""

    scale: Positive = 1.0  # s

    def forge(self, seen: Seen) -> Tensor:
        """Return −s·Δ_i."""
        return seen.own.mul_(-self.scale)
