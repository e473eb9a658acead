"""Arms side by side: how good they end, how sure that is, and what it took to get to a target."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from rich.text import Text

from turnout.errors import ConfigError, JournalError
from turnout.journal.load import Loaded
from turnout.streams import Floats, Streams
from turnout.study.statistics import (
    LEVEL,
    Paired,
    Reached,
    Summary,
    first_reached,
    holm,
    paired,
    summarise,
    to_target,
)

SHARE = 0.95  # of the way to the best arm, for a target nobody gave
CLEAR = 0.05  # a corrected p-value below this is called clear
LOWER_IS_BETTER = ("loss", "error")
COSTS = {
    "round": "round",
    "bytes": "cumulative_bytes",
    "gradient_evaluations": "cumulative_gradient_evaluations",
    "sim_seconds": "cumulative_sim_seconds",
}
SURE = f"{100 * LEVEL:.0f} %"
MISSING = "–"
MEGABYTE = 1e6

Curves = dict[int, pd.DataFrame]  # by seed: the measured rounds, with the metric as "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One arm."""

    arm: str
    final: Summary
    diverged: int  # seeds that did not end with a finite value
    difference: Paired | None  # from the baseline; None for the baseline itself
    holm_p: float | None  # the t-test's, corrected over the arms
    to_target: Mapping[str, Reached]  # by "round", "bytes", "gradient_evaluations", "sim_seconds"; empty: no target


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Arms compared on one metric."""

    metric: str
    higher_is_better: bool
    baseline: str
    rows: tuple[Row, ...]
    target: float | None
    target_origin: str  # where the target comes from
    notes: tuple[str, ...]  # what a reader should know

    def table(self) -> Table:
        """Return the comparison for a terminal."""
        caption = Text("\n".join(self._remarks()))  # Text: brackets in a name or an interval are no markup
        table = Table(caption=caption, caption_justify="left", box=None, pad_edge=False)
        for place, heading in enumerate(self._headings()):
            table.add_column(Text(heading), justify="right" if place else "left")
        for row in self.rows:
            table.add_row(*map(Text, self._cells(row)))
        return table

    def text(self) -> str:
        """Return the comparison as plain lined-up columns."""
        lines = [self._headings(), *map(self._cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*shown, *self._remarks()])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values, None where nothing can be said."""
        return {**asdict(self), "verdict": self.verdict()}

    def verdict(self) -> str:
        """Return the outcome in one sentence, with no more claimed than the seeds allow."""
        base = self._row(self.baseline)
        if len(self.rows) == 1:
            return f"One arm, nothing to compare it with: {base.arm} ends at {self._final(base)}."
        lost = [row for row in self.rows if row.final.mean is None]
        if base.final.mean is None:
            return f"{base.arm}, the baseline, diverged in {_of(base.diverged, base.final.count)}; nothing is claimed."
        ranked = sorted((row for row in self.rows if row not in (*lost, base)), key=self._rank)
        if not ranked:
            return f"Every arm but {base.arm} diverged; nothing is claimed."
        return self._sentence(ranked[-1], base)

    def _sentence(self, row: Row, base: Row) -> str:
        difference = row.difference
        if difference is None:
            return f"{row.arm} and {base.arm} share no seed; nothing is claimed."
        if difference.mean == 0:
            return f"{row.arm} ends level with {base.arm} over {_seeds(difference.pairs)}."
        better = (difference.mean > 0) == self.higher_is_better
        opening = row.arm if better else f"No arm ends better than {base.arm}: {row.arm}, the next best,"
        verb = f"{opening} ends {self._distance(difference.mean)} {base.arm if better else 'it'}"
        if difference.pairs == 1:
            return f"{verb} in the one seed that was run; one seed cannot tell a difference from luck, so run more."
        if difference.low is None or difference.high is None:
            return f"{verb} by the same amount in each of {difference.pairs} seeds, which leaves nothing to test."
        sign = 1 if difference.mean > 0 else -1
        low, high = sorted((sign * difference.low, sign * difference.high))
        interval = f"{SURE} interval {self._amount(low)} to {self._amount(high)}"
        sentence = f"{verb}, {interval}, in {_of(difference.agreeing, difference.pairs)}"
        if row.holm_p is not None and row.holm_p >= CLEAR:
            sentence += f"; not a clear difference (p = {_p(row.holm_p)})"
        return sentence + "."

    def _distance(self, mean: float) -> str:
        unit = " points" if self._in_points else ""
        amount = f"{self._amount(abs(mean))}{unit} {'above' if mean > 0 else 'below'}"
        return amount if self._in_points else f"with a {self.metric} {amount}"

    def _rank(self, row: Row) -> float:
        mean = row.final.mean
        assert mean is not None
        return mean if self.higher_is_better else -mean

    def _row(self, arm: str) -> Row:
        return next(row for row in self.rows if row.arm == arm)

    @property
    def _in_points(self) -> bool:
        return self.metric.endswith("accuracy")

    def _amount(self, value: float) -> str:
        return _signed(f"{100 * value:z.1f}" if self._in_points else f"{value:z.3g}")

    def _final(self, row: Row) -> str:
        if row.final.mean is None:
            return "diverged"
        if self._in_points:
            std = MISSING if row.final.std is None else f"{100 * row.final.std:.2f}"
            return f"{100 * row.final.mean:.2f} ± {std} %"
        std = MISSING if row.final.std is None else f"{row.final.std:.2g}"
        return _signed(f"{row.final.mean:.4g} ± {std}")

    def _difference(self, row: Row) -> str:
        difference = row.difference
        if difference is None:
            return MISSING
        mean = _signed(f"{100 * difference.mean:+z.1f}" if self._in_points else f"{difference.mean:+z.3g}")
        if difference.low is None or difference.high is None:
            return f"{mean} [{MISSING}]"
        return f"{mean} [{self._amount(difference.low)}, {self._amount(difference.high)}]"

    def _headings(self) -> list[str]:
        unit = "points" if self._in_points else "difference"
        return [
            "arm",
            "seeds",
            f"final {self.metric}",
            f"{unit} from {self.baseline} [{SURE}]",
            "p (Holm)",
            "rounds to target",
            "MB to target",
            "gradients to target",
        ]

    def _cells(self, row: Row) -> list[str]:
        return [
            row.arm,
            str(row.final.count),
            self._final(row),
            self._difference(row),
            MISSING if row.holm_p is None else _p(row.holm_p),
            _median(row.to_target.get("round"), 1),
            _median(row.to_target.get("bytes"), MEGABYTE),
            _median(row.to_target.get("gradient_evaluations"), 1),
        ]

    def _remarks(self) -> list[str]:
        remarks = []
        if self.target is not None:
            shown = f"{100 * self.target:.2f} %" if self._in_points else _signed(f"{self.target:.4g}")
            remarks.append(f"target: {self.metric} {shown} ({self.target_origin}); medians over seeds")
        return [*remarks, *self.notes]


def compare(
    loaded: Sequence[Loaded] | Loaded,
    *,
    metric: str | None = None,
    baseline: str | None = None,
    target: float | None = None,
) -> Comparison:
    """Compare the arms of one study, or of several, over their finished runs.

    Args:
        loaded: what `turnout.load` returned.
        metric: what to compare; accuracy where it was measured, else loss.
        baseline: the arm that the others are held against; the first.
        target: the value to be reached; by default 95 % of the best arm's final mean (of a loss: 95 % of the way from
            the first measurement to it).
    """
    studies = [loaded] if isinstance(loaded, Loaded) else list(loaded)
    metric = _metric(studies, metric)
    higher = not any(word in metric for word in LOWER_IS_BETTER)
    arms, notes = _arms(studies, metric)
    baseline = _baseline(arms, baseline)
    origin = "as given"
    if target is None:
        target, origin = _target(arms, higher)
    _check_target(target, metric)
    rows = _rows(arms, baseline, target, higher)
    return Comparison(
        metric=metric,
        higher_is_better=higher,
        baseline=baseline,
        rows=rows,
        target=target,
        target_origin=origin,
        notes=(*notes, *_row_notes(rows)),
    )


def _rows(arms: Mapping[str, Curves], baseline: str, target: float | None, higher: bool) -> tuple[Row, ...]:
    finals = {arm: _finals(curves) for arm, curves in arms.items()}
    differences = {arm: _paired(finals[arm], finals[baseline]) for arm in arms if arm != baseline}
    p_values = [None if each is None else each.t_test_p for each in differences.values()]
    corrected = dict(zip(differences, holm(p_values), strict=True))
    return tuple(
        Row(
            arm=arm,
            final=_summary(curves),
            diverged=sum(not np.isfinite(value) for value in finals[arm].values()),
            difference=differences.get(arm),
            holm_p=corrected.get(arm),
            to_target={} if target is None else _costs(curves, target, higher),
        )
        for arm, curves in arms.items()
    )


def _metric(studies: Sequence[Loaded], metric: str | None) -> str:
    known = [set(study.metrics) for study in studies]
    shared = set.intersection(*known) if known else set()
    if metric is None:
        metric = "accuracy" if "accuracy" in shared else "loss"
        if metric not in shared:
            raise JournalError("Nothing was measured that every study has. Let a round be measured, or name a metric.")
    if metric not in shared:
        raise ConfigError(f"No metric {metric!r} to compare. Choose one of {', '.join(sorted(shared)) or 'none'}.")
    return metric


def _arms(studies: Sequence[Loaded], metric: str) -> tuple[dict[str, Curves], list[str]]:
    """Return each arm's finished curves, under a name of its own."""
    arms: dict[str, Curves] = {}
    unfinished = 0
    for study, names in zip(studies, names_of_arms(studies), strict=True):
        done = study.runs[study.runs["status"] == "finished"]
        unfinished += len(study.runs) - len(done)
        wanted = set(zip(done["arm"], done["seed"], strict=True))
        measured = study.rounds["evaluated"] if metric in ("loss", "accuracy") else study.rounds[metric].notna()
        for key, curve in study.rounds[measured].groupby(["arm", "seed"], sort=False):
            if key in wanted:
                arm, seed = curve["arm"].iloc[0], int(curve["seed"].iloc[0])
                arms.setdefault(names[arm], {})[seed] = curve.assign(value=curve[metric])
    if not arms:
        raise JournalError("No run is finished, so there is nothing to compare yet. Wait, or run the study again.")
    return arms, [f"unfinished runs left out: {unfinished}"] if unfinished else []


def names_of_arms(studies: Sequence[Loaded]) -> list[dict[str, str]]:
    """Return what each study's arms are called: by the study too where two studies share an arm's name."""
    everywhere = [arm for study in studies for arm in study.arms]
    taken: dict[str, int] = {}
    names = []
    for study in studies:
        of_study = {}
        for arm in study.arms:
            name = arm if everywhere.count(arm) == 1 else f"{study.study['name']}: {arm}"
            taken[name] = taken.get(name, 0) + 1
            of_study[arm] = name if taken[name] == 1 else f"{name} ({taken[name]})"
        names.append(of_study)
    return names


def _baseline(arms: Mapping[str, Curves], baseline: str | None) -> str:
    if baseline is None:
        return next(iter(arms))
    if baseline not in arms:
        raise ConfigError(f"No finished arm is called {baseline!r}. Choose a baseline of: {', '.join(arms)}.")
    return baseline


def _finals(curves: Curves) -> dict[int, float]:
    return {seed: float(curve["value"].iloc[-1]) for seed, curve in sorted(curves.items())}


def _paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Paired | None:
    seeds = [seed for seed in ours if seed in theirs]
    mine: Floats = np.array([ours[seed] for seed in seeds])
    other: Floats = np.array([theirs[seed] for seed in seeds])
    return paired(mine, other, streams=Streams(0))


def _summary(curves: Curves) -> Summary:
    return summarise(np.array(list(_finals(curves).values())))


def _target(arms: Mapping[str, Curves], higher: bool) -> tuple[float | None, str]:
    """Return a target that the best arm reaches, and where it comes from."""
    means = [mean for mean in (_summary(curves).mean for curves in arms.values()) if mean is not None]
    if not means:
        return None, ""
    share = f"{100 * SHARE:.0f} %"
    if higher:
        best = max(means)
        return (SHARE * best, f"{share} of the best arm's final mean") if best > 0 else (None, "")
    best = min(means)
    start = float(np.mean([curve["value"].iloc[0] for curves in arms.values() for curve in curves.values()]))
    if not np.isfinite(start) or start <= best:
        return None, ""
    return start - SHARE * (start - best), f"{share} of the way from the start to the best arm's final mean"


def _check_target(target: float | None, metric: str) -> None:
    if target is None:
        return
    if not np.isfinite(target) or (metric == "accuracy" and not 0 <= target <= 1):
        needed = "between 0 and 1" if metric == "accuracy" else "finite"
        raise ConfigError(f"The target for {metric} needs to be {needed}; got {target}. Set target to such a number.")


def _costs(curves: Curves, target: float, higher: bool) -> dict[str, Reached]:
    """Return what it took to reach the target: the round and every cost up to it."""
    firsts = [
        (curve, first_reached(curve["value"].to_numpy(), target, higher_is_better=higher)) for curve in curves.values()
    ]
    return {
        name: to_target([None if first is None else float(curve[column].iloc[first]) for curve, first in firsts])
        for name, column in COSTS.items()
    }


def _row_notes(rows: Sequence[Row]) -> list[str]:
    notes = []
    for row in rows:
        reached = row.to_target.get("round")
        if reached is not None and reached.reached < reached.seeds:
            notes.append(f"{row.arm}: {reached.seeds - reached.reached} of {reached.seeds} never reached it")
        if row.diverged:
            notes.append(f"{row.arm}: diverged in {_of(row.diverged, row.final.count)}")
        if row.difference is not None and row.difference.pairs < row.final.count:
            notes.append(f"{row.arm}: {_of(row.difference.pairs, row.final.count)} shared with the baseline")
    return notes


def _seeds(count: int) -> str:
    return f"{count} seed{'s' if count != 1 else ''}"


def _of(count: int, seeds: int) -> str:
    return f"{count} of {_seeds(seeds)}"


def _median(reached: Reached | None, unit: float) -> str:
    if reached is None or reached.median is None:
        return MISSING
    value = reached.median / unit
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _signed(text: str) -> str:
    return "−" + text[1:] if text.startswith("-") else text
