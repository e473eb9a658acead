"""Exponential: the local learning rate is multiplied by the same factor in every round.

Intuition: a slow, steady decay that needs no milestones.

    η_t = η_l · γᵗ⁻¹       or η_l · γᵗ with from_start

Reduces to: a constant learning rate when γ = 1.
Differs from the paper: the first round uses η_l; FedExP's code decays before the first round, as from_start does.
Reference: Jhunjhunwala, Wang, Joshi (FedExP). ICLR 2023. arXiv:2301.09604.
"""

from turnout.settings import PositiveShare, rule


@rule("local.schedule")
class Exponential:
    """A constant factor per round."""

    decay: PositiveShare = 0.998  # factor γ on the learning rate per round, above 0 to 1; 1 is no decay, 0.998 is usual
    from_start: bool = False  # decay also before the first round (true, as FedExP's code does), or after it (false)

    def factor(self, round: int) -> float:
        """Return γᵗ⁻¹, or γᵗ."""
        return float(self.decay ** (round if self.from_start else round - 1))
