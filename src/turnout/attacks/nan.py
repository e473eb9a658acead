"""NaN: attackers send NaN values.

Intuition: one NaN makes a whole sum NaN; a server that does not check updates loses its model.

    Δ̃_i = NaN

The server rejects and records a non-finite update, and the round continues without it.

Reduces to: clients that never return an update.
Reference: none needed.
"""

import torch
from torch import Tensor

from turnout.attacks.attack import Attackers, Seen
from turnout.settings import rule


@rule("attack")
class NaN(Attackers):
    """Updates of NaN."""

    def forge(self, seen: Seen) -> Tensor:
        """Return updates of NaN."""
        return torch.full_like(seen.own, torch.nan)
