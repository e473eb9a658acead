"""Exponential: the local learning rate shrinks by the same factor every round.

Intuition: a slow, steady cooling that needs no milestones.

    η_t = η_l · γᵗ⁻¹       or η_l · γᵗ with from_start

Reduces to: a constant rate when γ = 1.
Differs from the paper: the first round runs at η_l; FedExP's code decays before it, which is from_start.
Reference: Jhunjhunwala, Wang, Joshi (FedExP). ICLR 2023. arXiv:2301.09604.
"""

from turnout.settings import PositiveShare, rule


@rule("local.schedule")
class Exponential:
    """A constant factor per round."""

    decay: PositiveShare = 0.998  # γ
    from_start: bool = False  # decay before the first round too

    def factor(self, round: int) -> float:
        """Return γᵗ⁻¹, or γᵗ."""
        return float(self.decay ** (round if self.from_start else round - 1))
