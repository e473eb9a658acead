"""How many seeds a study needs: the spread of each pair of arms over pilot seeds, and what it allows to tell."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from turnout import number_format
from turnout.analysis.compare import final_values
from turnout.analysis.differences import Pair
from turnout.analysis.power import POWER, seeds_needed
from turnout.analysis.statistics import ALPHA
from turnout.errors import ConfigError, JournalError
from turnout.journal.load import Loaded
from turnout.metrics import metric_named
from turnout.number_format import MISSING

POINTS = 100.0  # in a share of one
DEFAULT_POINTS = 1.0  # the difference to plan for, of metrics that are shares
ROUGH = 10  # with fewer pilot seeds than this the spread is known to within a factor of about two


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """What seeds tell of two arms."""

    arm: str
    other: str
    seeds: int  # pilot seeds of both
    mean: float  # the difference, arm − other
    std: float | None  # of the differences over seeds; None: one seed, or the same difference in each
    smallest: float | None  # smallest difference that these seeds tell with a power of 80 %
    needed: int | None  # seeds that tell `delta`; None: unknown, or too many
    needed_for_seen: int | None  # seeds that tell a difference as large as the mean


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPlan:
    """The seeds that a study needs."""

    metric: str
    delta: float | None  # the difference to tell; None: none was given
    comparisons: int  # differences that are tested together
    pairs: tuple[PairPlan, ...]

    @property
    def level(self) -> float:
        """The significance level of the first step of Holm's method, which is the strictest."""
        return ALPHA / self.comparisons

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "level": self.level, "power": POWER, "verdict": self.verdict()}

    def verdict(self) -> str:
        """Return the outcome in one sentence."""
        known = [pair for pair in self.pairs if pair.smallest is not None]
        if not known:
            return "There is no spread over seeds to plan with: run at least two seeds that differ."
        worst = max(known, key=lambda pair: pair.smallest or 0.0)
        assert worst.smallest is not None
        told = f"{worst.seeds} seeds tell {self._amount(worst.smallest)} or more between {worst.arm} and {worst.other}"
        if self.delta is None:
            return f"{told}, the pair that is hardest to tell apart."
        needed = [pair.needed for pair in known]
        goal = self._amount(self.delta)
        if any(each is None for each in needed):
            return (
                f"{told}, the pair that is hardest to tell apart; to tell {goal} there takes too many seeds to count."
            )
        most = max(each for each in needed if each is not None)
        return f"{most:,} seeds tell {goal} between any two arms; {told}, the pair that is hardest to tell apart."

    def text(self) -> str:
        """Return the plan as aligned columns of plain text, with notes below."""
        headings = ["arm", "other", "seeds", "difference", "spread", "can tell"]
        headings += [] if self.delta is None else [f"seeds for {self._amount(self.delta)}"]
        lines = [[*headings, "seeds for the one seen"], *map(self._cells, self.pairs)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                cell.ljust(width) if place < 2 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*table, *self._notes()])

    def _cells(self, pair: PairPlan) -> list[str]:
        cells = [pair.arm, pair.other, str(pair.seeds), self._amount(pair.mean, "+")]
        cells += [MISSING if value is None else self._amount(value) for value in (pair.std, pair.smallest)]
        cells += [] if self.delta is None else [number_format.number(pair.needed)]
        return [*cells, number_format.number(pair.needed_for_seen)]

    def _notes(self) -> list[str]:
        notes = [
            f"{self.metric} at the end; spread: standard deviation of the differences, seed by seed",
            f"seeds are those of a paired t-test with a power of {100 * POWER:.0f} % at p < {self.level:.3g}, "
            f"corrected for "
            f"{number_format.plural(self.comparisons, 'comparison')} with one baseline",
        ]
        if any(pair.seeds < ROUGH for pair in self.pairs):
            notes.append(
                "the spread of a few seeds is rough, and so is what follows from it: the true number may be double"
            )
        return notes

    def _amount(self, value: float, sign: str = "") -> str:
        if metric_named(self.metric).is_share:
            return f"{number_format.signed(f'{100 * value:{sign}z.2f}')} points"
        return number_format.signed(f"{value:{sign}z.3g}")


def seed_plan(loaded: Sequence[Loaded] | Loaded, *, metric: str | None = None, delta: float | None = None) -> SeedPlan:
    """Return the seeds that tell the arms of finished runs apart.

    Args:
        loaded: one or several studies that `turnout.load` returned.
        metric: the metric to plan for; by default accuracy if it was measured, else loss.
        delta: the difference to tell: in points of a metric that is a share, 1 by default; else in its own unit.
    """
    if delta is not None and not (np.isfinite(delta) and delta > 0):
        raise ConfigError(f"The difference to tell must be a number above 0; got {delta:g}. Change delta.")
    found = final_values([loaded] if isinstance(loaded, Loaded) else list(loaded), metric)
    if len(found.arms) < 2:
        raise JournalError("There is only one arm, so there is no difference to plan for. Add an arm to the study.")
    if metric_named(found.metric).is_share:
        delta = (DEFAULT_POINTS if delta is None else delta) / POINTS
    alike = [(arm, other) for other, arm in combinations(found.arms, 2) if found.apart(arm, other) is None]
    if not alike:
        first, second, *_ = found.arms
        raise JournalError(f"No two arms can be compared. {second}: {found.apart(second, first)}.")
    comparisons = max(sum(arm in pair for pair in alike) for arm in found.arms)
    level = ALPHA / comparisons
    pairs = [
        _planned(arm, other, Pair(found.arms[arm], found.arms[other], found.are_paired(arm, other)), level, delta)
        for arm, other in alike
    ]
    known = tuple(pair for pair in pairs if pair is not None)
    if not known:
        raise JournalError("No two arms have a finished seed in common that ended with a finite value. Run more seeds.")
    return SeedPlan(metric=found.metric, delta=delta, comparisons=comparisons, pairs=known)


def _planned(arm: str, other: str, pair: Pair, level: float, delta: float | None) -> PairPlan | None:
    difference = pair.at(None, level)
    if difference is None:
        return None
    std = None if difference.error is None else difference.error * float(np.sqrt(difference.seeds))
    return PairPlan(
        arm=arm,
        other=other,
        seeds=difference.seeds,
        mean=difference.mean,
        std=std,
        smallest=difference.smallest,
        needed=None if std is None or delta is None else seeds_needed(delta, std, level),
        needed_for_seen=difference.seeds_needed,
    )
