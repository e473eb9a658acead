"""Gaussian: attackers send Gaussian noise instead of their update.

Intuition: the attacker needs no knowledge; it only disturbs training.

    Δ̃_i = σ·ξ_i,    ξ_i ~ N(0, I) keyed by (seed, "attack", round, client)

Reduces to: a disguised free-rider whose noise does not decay (free-rider with decay = 0).
Differs from the paper: the default σ is 1, not 200, because Δ_i is an update and already contains the learning rate.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017 (section 5).
"""

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class Gaussian(Attackers):
    """Noise instead of an update."""

    std: Positive = 1.0  # standard deviation σ of the noise on each parameter, greater than 0; 1 is large

    def forge(self, seen: Seen) -> Tensor:
        """Return σ·ξ_i."""
        return seen.noise().mul_(self.std)
