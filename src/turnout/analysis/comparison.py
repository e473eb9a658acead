"""The result of comparing arms: as a sentence, as a text table, and as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from turnout import number_format
from turnout.analysis.statistics import LEVEL, Difference, Reached, Summary
from turnout.analysis.target import Target
from turnout.metrics import metric_named
from turnout.number_format import MISSING, Say

SURE = f"{100 * LEVEL:.0f} %"
BLOCKS = "▁▂▃▄▅▆▇█"
TO_TARGET: Mapping[str, tuple[str, Say]] = {
    "round": ("rounds", number_format.number),
    "bytes": ("bytes", number_format.amount_of_bytes),
    "gradient_evaluations": ("gradients", number_format.number),
    "sim_seconds": ("simulated time", number_format.seconds),
}
SPREAD = "mean ± standard deviation over seeds"
PAIRED = "differences are taken seed by seed; interval: Student's t; p: t-test"
UNPAIRED = "differences are taken between the means over seeds; interval and p: Welch's t-test"
CORRECTION = "both are corrected for the number of arms (Holm's method), so they agree"
MANY_SEEDS = 1000  # more seeds than this are not counted
NOBODY = "No client took part in any arm or seed, so nothing was learnt and nothing can be compared."
ONE_SEED = "one seed gives neither a spread nor a test: run more seeds, for example with --seeds 5"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arm."""

    arm: str
    final: Summary
    diverged: int  # seeds that did not end with a finite value
    absent: int = 0  # seeds in which no client took part
    shared: int = 0  # seeds that the baseline has as well
    difference: Difference | None  # from the baseline; None for the baseline itself, and for an arm apart
    # by "round", "bytes", "gradient_evaluations", "sim_seconds"; empty: no target, or one of arms measured otherwise
    to_target: Mapping[str, Reached]
    apart: str | None = None  # why the arm is not compared with the baseline; None: it is
    curve: tuple[float | None, ...] = ()  # the mean over seeds at a few rounds; None where a seed diverged


class Shown(NamedTuple):
    """A comparison as a table of text; the first column names the arm."""

    headings: list[str]
    rows: list[list[str]]
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Arms compared on one metric."""

    metric: str
    higher_is_better: bool | None  # None: not known for this metric
    baseline: str
    rows: tuple[Row, ...]
    target: Target | None
    target_origin: str  # where the target comes from
    notes: tuple[str, ...]  # remarks on single arms, shown below the table
    moment: str = "final"  # when the values were measured, as the heading of their column says it

    def text(self) -> str:
        """Return the comparison as aligned columns of plain text; the last column is each arm's curve."""
        shown = self.shown()
        curves = [f"{self.metric} over rounds", *self.sparklines()]
        lines = [[*cells, curve] for cells, curve in zip([shown.headings, *shown.rows], curves, strict=True)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        last = len(widths) - 1
        columns = [
            "  ".join(
                cell.ljust(width) if place in (0, last) else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*columns, *shown.notes])

    def sparklines(self) -> list[str]:
        """Return the curve of each arm as blocks of eight heights, on one scale for all."""
        return sparklines([row.curve for row in self.rows])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values; None for what is not known."""
        values = {**asdict(self), "verdict": self.verdict()}
        for row in values["rows"]:
            del row["curve"]  # a few points for a sparkline; the journal has all of them
        return values

    def shown(self) -> Shown:
        """Return the cells of the table as text, and the notes below it."""
        used = self.costs_shown()
        unit = "points" if self.in_points else "difference"
        pairs = [f"{unit} from {self.baseline} [{SURE}]", "p"] if len(self.rows) > 1 else []
        rows = [
            [
                row.arm,
                str(row.final.count),
                self.final(row),
                *((self._difference(row.difference), _corrected_p(row.difference)) if pairs else ()),
                *(_reached(row.to_target.get(name), say) for name, (_, say) in used.items()),
            ]
            for row in self.rows
        ]
        headings = [
            "arm",
            "seeds",
            f"{self.moment} {self.metric}",
            *pairs,
            *(f"{heading} to target" for heading, _ in used.values()),
        ]
        return Shown(headings, rows, self._notes())

    def verdict(self) -> str:
        """Return the outcome in one sentence that claims no more than the seeds allow."""
        if all(row.absent == row.final.count for row in self.rows):
            return NOBODY
        base = next(row for row in self.rows if row.arm == self.baseline)
        if len(self.rows) == 1:
            one = " in the only seed that was run" if base.final.count == 1 and base.final.mean is not None else ""
            return f"There is only one arm, so nothing to compare: {base.arm} ends at {self.final(base)}{one}."
        diverged = [row for row in self.rows if row.final.mean is None]
        if base.final.mean is None:
            where = of(base.diverged, base.final.count)
            return f"The baseline {base.arm} diverged in {where}, so nothing can be compared."
        alike = [row for row in self.rows if row.apart is None and row is not base]
        if not alike:
            return f"No arm is measured as the baseline {base.arm} is, so nothing can be compared."
        ranked = sorted((row for row in alike if row not in diverged), key=self._rank)
        if not ranked:
            return f"Every arm except the baseline {base.arm} diverged, so nothing can be compared."
        return self._sentence(ranked[-1], base)

    @property
    def in_points(self) -> bool:
        """Whether differences are in percentage points."""
        return metric_named(self.metric).is_share

    def final(self, row: Row) -> str:
        """Return an arm's final value as mean ± standard deviation; with one seed, the value alone."""
        if row.final.mean is None:
            return f"diverged in {row.diverged} of {row.final.count}"
        say = number_format.spread_percent if self.in_points else number_format.spread
        return say(row.final.mean, row.final.std, 2 if self.in_points else 4)

    def amount(self, value: float, sign: str = "") -> str:
        """Return a difference in the unit of the metric: points, or the metric itself."""
        return number_format.signed(f"{100 * value:{sign}z.1f}" if self.in_points else f"{value:{sign}z.3g}")

    def ends(self, low: float, high: float) -> tuple[str, str]:
        """Return the ends of an interval as text; an end that is not zero is never shown as zero."""
        if not self.in_points:
            return self.amount(low), self.amount(high)
        digits = number_format.decimals((100 * low, 100 * high), 0.0, 1)
        return number_format.signed(f"{100 * low:z.{digits}f}"), number_format.signed(f"{100 * high:z.{digits}f}")

    def _sentence(self, row: Row, base: Row) -> str:
        difference = row.difference
        if difference is None:
            return f"{row.arm} and {base.arm} have no seed in common, so nothing can be compared."
        if difference.mean == 0:
            over = f"over {difference.seeds} seeds" if difference.seeds > 1 else "in the only seed that was run"
            return f"{row.arm} ends level with {base.arm} {over}."
        better = self.higher_is_better in (None, difference.mean > 0)
        opening = row.arm if better else f"No arm ends better than {base.arm}: {row.arm}, the next best,"
        verb = f"{opening} ends {self._distance(difference.mean)} {base.arm if better else 'it'}"
        if difference.seeds == 1:
            return f"{verb} in the only seed that was run; one seed cannot tell a difference from chance, so run more."
        if difference.low is None or difference.high is None:
            return f"{verb} by the same amount in each of {difference.seeds} seeds, so no test is possible."
        sign = 1 if difference.mean > 0 else -1
        low, high = self.ends(*sorted((sign * difference.low, sign * difference.high)))
        interval = f"{SURE} interval {low} to {high}"
        how = "not paired" if difference.agreeing is None else f"in {of(difference.agreeing, difference.seeds)}"
        sentence = f"{verb}, {interval}, {how}"
        if not difference.is_clear:
            sentence += (
                f"; not settled (p = {number_format.p_value(difference.corrected_p)}): {self.outlook(difference)}"
            )
        return sentence + "."

    def outlook(self, difference: Difference) -> str:
        """Return what the seeds could have told, and about how many more would tell a difference of the size seen."""
        assert difference.smallest is not None
        unit = " points" if self.in_points else ""
        told = f"{difference.seeds} seeds can tell {self.amount(difference.smallest)}{unit} or more"
        needed = difference.seeds_needed
        if needed is None or needed > MANY_SEEDS:
            return f"{told}; more than {MANY_SEEDS:,} would be needed for one of this size"
        more = needed - difference.seeds
        if more <= 0:
            return f"{told}; a few more may settle it"
        return f"{told}; about {more:,} more would tell one of this size"

    def _distance(self, mean: float) -> str:
        unit = " points" if self.in_points else ""
        amount = f"{self.amount(abs(mean))}{unit} {'above' if mean > 0 else 'below'}"
        return amount if self.in_points else f"with a {self.metric} {amount}"

    def _rank(self, row: Row) -> float:
        """Return a number that is larger for a better arm; by the size of the difference if better is not defined."""
        mean = row.final.mean
        assert mean is not None
        if self.higher_is_better is None:
            return 0.0 if row.difference is None else abs(row.difference.mean)
        return mean if self.higher_is_better else -mean

    def _difference(self, difference: Difference | None) -> str:
        if difference is None:
            return MISSING
        mean = self.amount(difference.mean, "+") + ("" if difference.is_paired else " unpaired")
        if difference.low is None or difference.high is None:  # one pair, or the same difference in each
            return mean
        low, high = self.ends(difference.low, difference.high)
        return f"{mean} [{low}, {high}]"

    def costs_shown(self) -> dict[str, tuple[str, Say]]:
        """Return the costs to the target that the table shows; simulated time only if the fleet has a clock."""
        if self.target is None:
            return {}
        has_clock = any((row.to_target["sim_seconds"].median or 0) > 0 for row in self.rows if row.to_target)
        return {name: column for name, column in TO_TARGET.items() if has_clock or name != "sim_seconds"}

    def _method(self) -> str:
        """Return how differences were computed: seed by seed, between means, or some in each way."""
        is_paired = {row.difference.is_paired for row in self.rows if row.difference is not None}
        if not is_paired:
            return SPREAD
        method = UNPAIRED if is_paired == {False} else PAIRED  # of some of both, notes name the unpaired
        return f"{SPREAD}; {method}; {CORRECTION}"

    def _notes(self) -> list[str]:
        several = any(row.final.count > 1 for row in self.rows)
        remarks = [self._method() if several else ONE_SEED]
        if self.target is not None:
            metric, value = self.target.metric, self.target.value
            shown = number_format.percent(value, 2) if metric_named(metric).is_share else number_format.number(value, 4)
            medians = "; medians over seeds" if several else ""
            remarks.append(f"target: {metric} {shown} ({self.target_origin}){medians}")
            rounds = [row.to_target["round"] for row in self.rows if row.to_target]
            if any(0 < each.reached < each.seeds for each in rounds):
                remarks.append(
                    "in brackets: how many seeds reached the target; the median takes the others, which ended before "
                    "they reached it, into account (Kaplan-Meier), and is a dash if it lies beyond the rounds run"
                )
        return [*remarks, *self._unsettled(), *self.notes]

    def _unsettled(self) -> list[str]:
        """Return what would settle each difference that is not clear."""
        return [
            f"{row.arm}: not settled: {self.outlook(row.difference)}"
            for row in self.rows
            if row.difference is not None and row.difference.low is not None and not row.difference.is_clear
        ]


def _corrected_p(difference: Difference | None) -> str:
    if difference is None or difference.corrected_p is None:
        return MISSING
    return number_format.p_value(difference.corrected_p) + ("" if difference.is_clear else ", not settled")


def of(count: int, seeds: int) -> str:
    """Return a text such as "3 of 5 seeds"."""
    return f"{count} of {number_format.plural(seeds, 'seed')}"


def never_reached_note(row: Row) -> str | None:
    """Return a note on the seeds of an arm that never reached the target; None if all did."""
    reached = row.to_target.get("round")
    if reached is None or reached.reached == reached.seeds:
        return None
    return f"{row.arm}: {of(reached.seeds - reached.reached, reached.seeds)} never reached the target"


def sparklines(curves: Sequence[Sequence[float | None]]) -> list[str]:
    """Return each curve as blocks of eight heights, on one scale for all; a gap means that a seed diverged."""
    known = [value for curve in curves for value in curve if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    return ["".join(" " if v is None else BLOCKS[round((v - low) / step)] for v in curve) for curve in curves]


def _reached(reached: Reached | None, say: Say) -> str:
    if reached is None:
        return MISSING
    if reached.reached == 0:
        return "never"
    some = "" if reached.reached == reached.seeds else f" ({reached.reached}/{reached.seeds})"
    return say(reached.median) + some
