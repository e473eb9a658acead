"""Always up.

Intuition: the data-centre case, where nobody is ever away.

    A_t = {0, …, N−1}

Reduces to: the federation without a fleet.
Reference: none needed.
"""

from dataclasses import dataclass

from turnout.protocols import View
from turnout.streams import Ids


@dataclass(frozen=True, slots=True)
class Always:
    """Everyone, every round."""

    def up(self, view: View) -> Ids:
        """Return all clients."""
        return view.population.everyone
