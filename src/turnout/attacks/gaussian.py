"""Gaussian: attackers send noise instead of what they learned.

Intuition: it knows nothing and wants nothing but to disturb.

    Δ̃_i = σ·ξ_i,    ξ_i ~ N(0, I) keyed by (seed, "attack", round, client)

Reduces to: a disguised free-rider whose noise does not fade (free-rider with decay = 0).
Differs from the paper: σ is 1 unless given, not 200: Δ_i is a change of the model, with the rate already in it.
Reference: Blanchard, El Mhamdi, Guerraoui, Stainer. NeurIPS 2017 (section 5).
"""

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import Positive, rule


@rule("attack")
class Gaussian(Attackers):
    """Noise and nothing else."""

    std: Positive = 1.0  # σ, of each parameter

    def forge(self, seen: Seen) -> Tensor:
        """Return σ·ξ_i."""
        return seen.noise().mul_(self.std)
