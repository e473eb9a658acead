"""No filter: everyone who is up may be asked.

Intuition: the selection rule sees the whole pool.

    pool = A_t

Reduces to: the base algorithm.
Reference: none needed.
"""

from turnout.array_types import Ids
from turnout.protocols import Ask, Kept, View
from turnout.settings import rule


@rule("filtering")
class Everyone:
    """Keep the whole pool."""

    def keep(self, pool: Ids, view: View, ask: Ask) -> Kept:
        """Return the pool."""
        return Kept(clients=pool)
