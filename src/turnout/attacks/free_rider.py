"""Free-rider: attackers send the model back as it came, perhaps with a little noise, and say they have worked.

Intuition: it wants the model and does not want to train; noise makes that harder to see.

    plain      Δ̃_i = 0                          σ = 0
    disguised  Δ̃_i = σ·t^(−γ)·ξ_i,    ξ_i ~ N(0, I) keyed by (seed, "attack", round, client)

Nothing is spent on its gradients, but they stay on the bill: the server believes the steps it reports.

Reduces to: a client that does not move when σ = 0, which slows a mean down and turns it nowhere.
Reference: Fraboni, Vidal, Lorenzi. AISTATS 2021. arXiv:2006.11901.
"""

from typing import Annotated

import torch
from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import GIVEN, NonNegative, When, rule


@rule("attack")
class FreeRider(Attackers):
    """No work, said to be work."""

    noise: NonNegative = 0.0  # σ, of each parameter in the first round
    decay: Annotated[NonNegative, When(noise=GIVEN)] = 1.0  # γ

    def forge(self, seen: Seen) -> Tensor:
        """Return σ·t^(−γ)·ξ_i."""
        if self.noise == 0:
            return torch.zeros_like(seen.own)
        return seen.noise().mul_(self.noise * float(seen.round) ** -self.decay)
