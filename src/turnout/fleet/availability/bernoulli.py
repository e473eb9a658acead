"""Bernoulli availability: each client flips its own coin each round.

Intuition: phones that happen to be idle, charging and on Wi-Fi.

    i ∈ A_t with probability q_i, independently

Reduces to: always up when q = 1.
Reference: Gu, Huang, Zhang, Huang (MIFA). NeurIPS 2021. arXiv:2106.04159.
"""

from dataclasses import dataclass

import numpy as np

from turnout.errors import ConfigError
from turnout.protocols import View
from turnout.streams import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Bernoulli:
    """Up with a probability of one's own."""

    prob: float | tuple[float, ...] = 0.5  # q: one for all, or one per client

    def __post_init__(self) -> None:
        low, high = np.min(self.prob), np.max(self.prob)
        if not 0 <= low <= high <= 1:
            raise ConfigError(f"Bernoulli needs prob in [0, 1]; got {low}…{high}. Change fleet.availability.prob.")

    def up(self, view: View) -> Ids:
        """Return the clients whose coin came up."""
        everyone = view.population.everyone
        if not isinstance(self.prob, float | int) and len(self.prob) != len(everyone):
            raise ConfigError(
                f"Bernoulli needs one prob, or one per client; got {len(self.prob)} for {len(everyone)} clients. "
                "Change fleet.availability.prob."
            )
        coin = view.streams.uniforms("availability", view.round, everyone)[:, 0]
        return everyone[coin < np.asarray(self.prob)]
