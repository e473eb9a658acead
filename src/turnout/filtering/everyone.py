"""No filter: every available client may be selected.

Intuition: the selection rule sees all available clients.

    pool = A_t

Reduces to: the algorithm without a filter.
Reference: none needed.
"""

from typing import ClassVar

from turnout.array_types import Ids
from turnout.protocols import Ask, Kept, View
from turnout.settings import rule


@rule("filtering")
class Everyone:
    """Keep the whole pool. No settings."""

    keeps_everyone: ClassVar[bool] = True

    def keep(self, pool: Ids, view: View, ask: Ask) -> Kept:
        """Return the pool."""
        return Kept(clients=pool)
