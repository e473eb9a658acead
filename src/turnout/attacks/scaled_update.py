"""Scaled update: attackers send their own change many times over, so that it outweighs everyone else's.

Intuition: a client that wants the model to suit itself need only shout.

    Δ̃_i = s·Δ_i

Reduces to: an honest client when s = 1.
Reference: Bhagoji, Chakraborty, Mittal, Calo. ICML 2019. arXiv:1811.12470 (explicit boosting).
"""

from dataclasses import dataclass

from torch import Tensor

from turnout.attacks.attack import Attackers, Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledUpdate(Attackers):
    """What was learned, many times over."""

    scale: float = 10.0  # s

    def __post_init__(self) -> None:
        Attackers.__post_init__(self)
        self._check_positive("scale", self.scale)

    def forge(self, seen: Seen) -> Tensor:
        """Return s·Δ_i."""
        return seen.own.mul_(self.scale)
