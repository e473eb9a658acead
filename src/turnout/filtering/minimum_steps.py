"""A filter by work: clients that would complete too few local steps are not selected.

Intuition: a device that cannot finish its work wastes its battery.

    keep i ∈ A_t with s_i ≥ least, where s_i is the number of the asked steps that client i would complete this round

Reduces to: no filter when least = 1.
Reference: none needed.
"""

from turnout.array_types import Ids
from turnout.protocols import Ask, Kept, View
from turnout.requests import Expected, Steps
from turnout.settings import StepCount, rule


@rule("filtering")
class MinimumSteps:
    """Keep clients that would complete enough local steps."""

    least: StepCount = 1  # smallest number of local steps s_i, 1 or more; 1 drops only clients that would do nothing

    def keep(self, pool: Ids, view: View, ask: Ask) -> Steps[Kept]:
        """Return the clients of the pool that would complete at least `least` steps; all if the world cannot say."""
        expected: Expected = yield ask.expected(pool)
        clients = pool if expected.steps is None else pool[expected.steps >= self.least]
        return Kept(clients=clients, metrics={"filter_kept": float(len(clients))})
