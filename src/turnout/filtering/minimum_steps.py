"""A filter by work: clients that would not get enough steps done are not asked.

Intuition: asking a device that cannot finish wastes its battery.

    keep i ∈ A_t with s_i ≥ least, where s_i is what it would get done of the work asked for this round

Reduces to: no filter when least = 1.
Reference: none needed.
"""

from dataclasses import dataclass

from turnout.errors import ConfigError
from turnout.protocols import Ask, Kept, View
from turnout.streams import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumSteps:
    """Keep clients whose local work is at least so many steps."""

    least: int = 1  # steps

    def __post_init__(self) -> None:
        if self.least < 1:
            raise ConfigError(f"MinimumSteps needs least >= 1; got {self.least}. Change filtering.least.")

    def keep(self, pool: Ids, view: View, ask: Ask) -> Kept:
        """Return the clients of the pool that would get enough done."""
        kept = pool[ask.steps(pool) >= self.least]
        return Kept(clients=kept, metrics={"filter_kept": float(len(kept))})
