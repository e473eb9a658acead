"""Free-rider: attackers do not train; they send zero or a little noise and report the full work.

Intuition: the attacker wants the model without the cost of training; noise makes this harder to detect.

    plain      Δ̃_i = 0                          σ = 0
    disguised  Δ̃_i = σ·t^(−γ)·ξ_i,    ξ_i ~ N(0, I) keyed by (seed, "attack", round, client)

An attacker computes no gradients, but the recorded cost includes them: the server believes the reported steps.

Reduces to: a client with an update of zero when σ = 0, which makes a mean smaller but does not turn it.
Reference: Fraboni, Vidal, Lorenzi. AISTATS 2021. arXiv:2006.11901.
"""

from typing import Annotated

import torch
from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import GIVEN, NonNegative, When, rule


@rule("attack")
class FreeRider(Attackers):
    """No training, reported as training."""

    # standard deviation σ of the noise on each parameter in the first round, 0 or more; 0 sends an update of zero
    noise: NonNegative = 0.0
    decay: Annotated[NonNegative, When(noise=GIVEN)] = 1.0  # exponent γ of the decay t^−γ of σ, 0 or more; 1 is usual

    def forge(self, seen: Seen) -> Tensor:
        """Return σ·t^(−γ)·ξ_i."""
        if self.noise == 0:
            return torch.zeros_like(seen.own)
        return seen.noise().mul_(self.noise * float(seen.round) ** -self.decay)
