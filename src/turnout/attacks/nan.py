"""NaN: attackers send numbers that are none.

Intuition: one NaN in a sum makes the whole sum NaN; a server that does not look loses its model.

    Δ̃_i = NaN

An answer that is not finite is rejected and on record with its client, and the round goes on without it.

Reduces to: clients that never answer.
Reference: none needed.
"""

import torch
from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import rule


@rule("attack")
class NaN(Attackers):
    """Not a number, anywhere."""

    def forge(self, seen: Seen) -> Tensor:
        """Return rows of NaN."""
        return torch.full_like(seen.own, torch.nan)
