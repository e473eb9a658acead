"""Complete work: whoever answers has done all that was asked.

Intuition: no device stops half-way.

    s_i = τ_i

Reduces to: the federation without a clock.
Reference: none needed.
"""

from turnout.array_types import Ids
from turnout.protocols import View
from turnout.settings import rule


@rule("fleet.work")
class Complete:
    """Everyone finishes."""

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return what was asked."""
        return asked
