"""Always available: every client is available in every round.

Intuition: clients in a data centre are never offline.

    A_t = {0, …, N−1}

Reduces to: the federation without a fleet.
Reference: none needed.
"""

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.protocols import View
from turnout.settings import rule


@rule("fleet.availability")
class Always:
    """Every client in every round. No settings."""

    def up(self, view: View) -> Ids:
        """Return all clients."""
        return view.population.everyone

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return 1 for each of these clients."""
        return np.ones(len(clients))
