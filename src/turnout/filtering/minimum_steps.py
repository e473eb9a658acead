"""A filter by work: clients that would not get enough steps done are not asked.

Intuition: asking a device that cannot finish wastes its battery.

    keep i ∈ A_t with s_i ≥ least, where s_i is what it would get done of the work asked for this round

Reduces to: no filter when least = 1.
Reference: none needed.
"""

from turnout.array_types import Ids
from turnout.protocols import Ask, Kept, View
from turnout.requests import Expected, Steps
from turnout.settings import StepCount, rule


@rule("filtering")
class MinimumSteps:
    """Keep clients whose local work is at least so many steps."""

    least: StepCount = 1  # steps

    def keep(self, pool: Ids, view: View, ask: Ask) -> Steps[Kept]:
        """Return the clients of the pool that would get enough done; all, where the world cannot say."""
        expected: Expected = yield ask.expected(pool)
        kept = pool if expected.steps is None else pool[expected.steps >= self.least]
        return Kept(clients=kept, metrics={"filter_kept": float(len(kept))})
