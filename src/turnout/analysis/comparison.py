"""A comparison of arms as a value, and how it is told: in a sentence, as a table, as plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from rich.console import Group
from rich.table import Table
from rich.text import Text

from turnout import number_format
from turnout.analysis.statistics import LEVEL, Difference, Reached, Summary
from turnout.analysis.target import Target
from turnout.metrics import metric_named
from turnout.number_format import MISSING, Say

CLEAR = 0.05  # a corrected p-value below this is called clear
SURE = f"{100 * LEVEL:.0f} %"
BLOCKS = "▁▂▃▄▅▆▇█"
TO_TARGET: Mapping[str, tuple[str, Say]] = {
    "round": ("rounds to target", number_format.number),
    "bytes": ("bytes to target", number_format.amount_of_bytes),
    "gradient_evaluations": ("gradients to target", number_format.number),
    "sim_seconds": ("simulated time to target", number_format.seconds),
}
METHODS = (
    "mean ± standard deviation over seeds; differences are taken seed by seed; interval: Student's t; p: t-test; "
    "intervals and p-values hold for all arms together (Bonferroni's correction)"
)
NOBODY = "No client ever took part, in any arm or seed: nothing was learnt from clients, nothing is claimed."
ONE_SEED = "one seed shows no spread and no test can be made of it: run more, with --seeds 5 for example"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arm."""

    arm: str
    final: Summary
    diverged: int  # seeds that did not end with a finite value
    absent: int = 0  # seeds in which no client ever took part
    difference: Difference | None  # from the baseline; None for the baseline itself
    to_target: Mapping[str, Reached]  # by "round", "bytes", "gradient_evaluations", "sim_seconds"; empty: no target
    curve: tuple[float | None, ...] = ()  # the mean over seeds on the way, a few points; None where one diverged


class Shown(NamedTuple):
    """A comparison as text: the first column names the arm."""

    headings: list[str]
    rows: list[list[str]]
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Arms compared on one metric."""

    metric: str
    higher_is_better: bool | None  # None: it is not declared which values are better
    baseline: str
    rows: tuple[Row, ...]
    target: Target | None
    target_origin: str  # where the target comes from
    notes: tuple[str, ...]  # what a reader should know

    def table(self) -> Group:
        """Return the comparison for a terminal: where arms end, with their curves, and below it what it took them.

        Both fit into 80 columns where names are short.
        """
        shown = self.shown()
        costs = len(self._costs_shown())
        lines = [[*row[: len(row) - costs], line] for row, line in zip(shown.rows, self._curves(), strict=True)]
        above = [heading.replace(f" [{SURE}]", f"\n[{SURE}]") for heading in shown.headings]
        parts: list[Table | Text] = [_columns([*above[: len(above) - costs], ""], lines)]
        if costs:
            headings = [heading.removesuffix(" to target") for heading in shown.headings[-costs:]]
            parts += [Text(), _columns(["to target", *headings], [[row[0], *row[-costs:]] for row in shown.rows])]
        notes = [*shown.notes, f"blocks: {self.metric} over rounds, on one scale"]
        return Group(*parts, Text(), Text("\n".join(notes), style="italic dim"))

    def text(self) -> str:
        """Return the comparison as plain lined-up columns, the last of them each arm's curve."""
        shown = self.shown()
        curves = [f"{self.metric} over rounds", *self._curves()]
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

    def _curves(self) -> list[str]:
        return sparklines([row.curve for row in self.rows])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, None where nothing can be said."""
        plain = {**asdict(self), "verdict": self.verdict()}
        for row in plain["rows"]:
            del row["curve"]  # a picture's few points; every point is in the journal
        return plain

    def shown(self) -> Shown:
        """Return the table as text, column by column, and the notes under it."""
        used = self._costs_shown()
        unit = "points" if self.in_points else "difference"
        pairs = [f"{unit} from {self.baseline} [{SURE}]", "p"] if len(self.rows) > 1 else []
        rows = [
            [
                row.arm,
                str(row.final.count),
                self.final(row),
                *((self._difference(row.difference), _corrected_p(row.difference)) if pairs else ()),
                *(_reached(row.to_target[name], say) for name, (_, say) in used.items()),
            ]
            for row in self.rows
        ]
        headings = ["arm", "seeds", f"final {self.metric}", *pairs, *(heading for heading, _ in used.values())]
        return Shown(headings, rows, self._remarks())

    def verdict(self) -> str:
        """Return the outcome in one sentence, with no more claimed than the seeds allow."""
        if all(row.absent == row.final.count for row in self.rows):
            return NOBODY
        base = next(row for row in self.rows if row.arm == self.baseline)
        if len(self.rows) == 1:
            one = " in the one seed that was run" if base.final.count == 1 and base.final.mean is not None else ""
            return f"One arm, nothing to compare it with: {base.arm} ends at {self.final(base)}{one}."
        lost = [row for row in self.rows if row.final.mean is None]
        if base.final.mean is None:
            return f"{base.arm}, the baseline, diverged in {of(base.diverged, base.final.count)}; nothing is claimed."
        ranked = sorted((row for row in self.rows if row not in (*lost, base)), key=self._rank)
        if not ranked:
            return f"Every arm but {base.arm} diverged; nothing is claimed."
        return self._sentence(ranked[-1], base)

    @property
    def in_points(self) -> bool:
        """Whether differences are told in percentage points."""
        return metric_named(self.metric).is_share

    def final(self, row: Row) -> str:
        """Return an arm's final value, mean ± standard deviation; one seed has no spread."""
        if row.final.mean is None:
            return f"diverged in {row.diverged} of {row.final.count}"
        say = number_format.spread_percent if self.in_points else number_format.spread
        return say(row.final.mean, row.final.std, 2 if self.in_points else 4)

    def amount(self, value: float, sign: str = "") -> str:
        """Return a difference in the metric's own measure."""
        return number_format.signed(f"{100 * value:{sign}z.1f}" if self.in_points else f"{value:{sign}z.3g}")

    def _sentence(self, row: Row, base: Row) -> str:
        difference = row.difference
        if difference is None:
            return f"{row.arm} and {base.arm} share no seed; nothing is claimed."
        if difference.mean == 0:
            over = f"over {difference.seeds} seeds" if difference.seeds > 1 else "in the one seed that was run"
            return f"{row.arm} ends level with {base.arm} {over}."
        better = self.higher_is_better in (None, difference.mean > 0)
        opening = row.arm if better else f"No arm ends better than {base.arm}: {row.arm}, the next best,"
        verb = f"{opening} ends {self._distance(difference.mean)} {base.arm if better else 'it'}"
        if difference.seeds == 1:
            return f"{verb} in the one seed that was run; one seed cannot tell a difference from luck, so run more."
        if difference.low is None or difference.high is None:
            return f"{verb} by the same amount in each of {difference.seeds} seeds, which leaves nothing to test."
        sign = 1 if difference.mean > 0 else -1
        low, high = sorted((sign * difference.low, sign * difference.high))
        interval = f"{SURE} interval {self.amount(low)} to {self.amount(high)}"
        how = "not paired" if difference.agreeing is None else f"in {of(difference.agreeing, difference.seeds)}"
        sentence = f"{verb}, {interval}, {how}"
        if difference.corrected_p is not None and difference.corrected_p >= CLEAR:
            sentence += f"; not a clear difference (p = {number_format.p_value(difference.corrected_p)})"
        return sentence + "."

    def _distance(self, mean: float) -> str:
        unit = " points" if self.in_points else ""
        amount = f"{self.amount(abs(mean))}{unit} {'above' if mean > 0 else 'below'}"
        return amount if self.in_points else f"with a {self.metric} {amount}"

    def _rank(self, row: Row) -> float:
        """Return how far up an arm stands; where no value is better, how far from the baseline."""
        mean = row.final.mean
        assert mean is not None
        if self.higher_is_better is None:
            return 0.0 if row.difference is None else abs(row.difference.mean)
        return mean if self.higher_is_better else -mean

    def _difference(self, told: Difference | None) -> str:
        if told is None:
            return MISSING
        mean = self.amount(told.mean, "+") + ("" if told.is_paired else " unpaired")
        if told.low is None or told.high is None:  # one pair, or the same in each
            return mean
        return f"{mean} [{self.amount(told.low)}, {self.amount(told.high)}]"

    def _costs_shown(self) -> dict[str, tuple[str, Say]]:
        """Return the costs to the target, without a clock that never moved."""
        if self.target is None:
            return {}
        ticked = any((row.to_target["sim_seconds"].median or 0) > 0 for row in self.rows)
        return {name: told for name, told in TO_TARGET.items() if ticked or name != "sim_seconds"}

    def _remarks(self) -> list[str]:
        several = any(row.final.count > 1 for row in self.rows)
        remarks = [ONE_SEED] if not several else [METHODS if len(self.rows) > 1 else METHODS.partition(";")[0]]
        if self.target is not None:
            metric, value = self.target.metric, self.target.value
            shown = number_format.percent(value, 2) if metric_named(metric).is_share else number_format.number(value, 4)
            medians = "; medians over seeds" if several else ""
            remarks.append(f"target: {metric} {shown} ({self.target_origin}){medians}")
            if any(0 < row.to_target["round"].reached < row.to_target["round"].seeds for row in self.rows):
                remarks.append(
                    "in brackets: how many seeds got there; the median allows for the others, which were stopped "
                    "before they did (Kaplan and Meier), and is a dash where it lies beyond"
                )
        return [*remarks, *self.notes]


def _columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return lined-up columns, the first to the left; Text, for brackets in a name or an interval are no markup."""
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(Text(heading), justify="right" if place else "left", overflow="fold", vertical="bottom")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _corrected_p(difference: Difference | None) -> str:
    return MISSING if difference is None else number_format.p_value(difference.corrected_p)


def of(count: int, seeds: int) -> str:
    """Return so many of so many seeds."""
    return f"{count} of {number_format.plural(seeds, 'seed')}"


def sparklines(curves: Sequence[Sequence[float | None]]) -> list[str]:
    """Return each curve as blocks of eight heights on one scale for all; a gap is where a seed diverged."""
    known = [value for curve in curves for value in curve if value is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    step = (high - low) / (len(BLOCKS) - 1) or 1.0
    return ["".join(" " if v is None else BLOCKS[round((v - low) / step)] for v in curve) for curve in curves]


def _reached(reached: Reached, say: Say) -> str:
    if reached.reached == 0:
        return "never"
    some = "" if reached.reached == reached.seeds else f" ({reached.reached}/{reached.seeds})"
    return say(reached.median) + some
