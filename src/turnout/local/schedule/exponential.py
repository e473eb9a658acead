"""Exponential: the local learning rate shrinks by the same factor every round.

Intuition: a slow, steady cooling that needs no milestones.

    η_t = η_l · γᵗ⁻¹       or η_l · γᵗ with from_start

Reduces to: a constant rate when γ = 1.
Differs from the paper: the first round runs at η_l; FedExP's code decays before it, which is from_start.
Reference: Jhunjhunwala, Wang, Joshi (FedExP). ICLR 2023. arXiv:2301.09604.
"""

from dataclasses import dataclass

from turnout.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """A constant factor per round."""

    decay: float = 0.998  # γ
    from_start: bool = False  # decay before the first round too

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ConfigError(f"Exponential needs decay in (0, 1]; got {self.decay}. Change local.schedule.decay.")

    def factor(self, round: int) -> float:
        """Return γᵗ⁻¹, or γᵗ."""
        return float(self.decay ** (round if self.from_start else round - 1))
