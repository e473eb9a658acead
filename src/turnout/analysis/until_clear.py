"""Add seeds until every comparison is clear: which seeds each look has."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from turnout.analysis.sequential import looks_of
from turnout.errors import JournalError
from turnout.settings import Range, rule

FEWEST = 3  # seeds of the first look: with two, the spread is known too badly to plan with
MOST_SEEDS = 100_000

Seeds = tuple[int, ...]


@rule("until_clear")
class UntilClear:
    """Add seeds until each comparison with the first arm is clear, or the most are run; `seeds` is the first look.

    Each look has about half as many seeds again as the look before. A boundary for the p-values keeps the error over
    all looks and comparisons at 5 %.
    """

    # largest number of seeds, 3 or more, at least the study's seeds; 20 to 60 is usual
    most: Annotated[int, Range(least=FEWEST, most=MOST_SEEDS)] = 40

    def looks(self, first: Sequence[int]) -> tuple[Seeds, ...]:
        """Return the seeds of each look, all from the first look on; later seeds follow the largest one."""
        more = range(max(first) + 1, max(first) + 1 + self.most - len(first))
        seeds = (*sorted(first), *more)
        return tuple(seeds[:count] for count in looks_of(len(first), max(self.most, len(first))))


def planned_looks(config: Mapping[str, Any]) -> tuple[Seeds, ...] | None:
    """Return the seeds of each look of a study that a journal holds; None if its number of seeds was fixed."""
    table = config.get("until_clear")
    if table is None:
        return None
    seeds = config.get("seeds", 1)
    first = list(range(min(seeds, MOST_SEEDS))) if isinstance(seeds, int) else seeds
    is_list = isinstance(first, list) and first and all(isinstance(seed, int) for seed in first)
    if not isinstance(table, Mapping) or not is_list or len(first) > MOST_SEEDS:
        raise JournalError("The journal's seeds or until_clear are not those of a study. Bring back a good copy of it.")
    return UntilClear(**table).looks(first)
