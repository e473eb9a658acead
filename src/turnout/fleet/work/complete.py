"""Complete work: every client completes all the local steps it is asked for.

Intuition: no device stops early.

    s_i = τ_i

Reduces to: the federation without a clock.
Reference: none needed.
"""

from turnout.array_types import Ids
from turnout.protocols import View
from turnout.settings import rule


@rule("fleet.work")
class Complete:
    """Every client finishes. No settings."""

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return the asked steps."""
        return asked
