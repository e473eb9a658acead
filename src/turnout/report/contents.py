"""What the page holds as numbers: curves, ranks, maps and events, ready for JSON."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from turnout.array_types import Floats
from turnout.journal.size_limits import check_can_show
from turnout.report import attendance, curves, fairness
from turnout.report.attendance import Attendance
from turnout.report.attendance_encoding import maps
from turnout.report.client_tables import by_client, client_table, group_table
from turnout.report.comparing import comparison_table, tests_table
from turnout.report.load_studies import Arm, Gathered, rounds_of
from turnout.report.tables import FAIR, PARTS, Table, ledger, over_seeds, turned_away

DIGITS = 6
SHORTAGE = re.compile(r"asked \d+ of (\d+): too few were up")
RARE = 3  # rounds: what happens no more often gets an upright line
MOST_LINES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a reader should know of a round."""

    text: str
    rounds: tuple[int, ...]
    arms: tuple[int, ...]
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything on the page that is not prose."""

    gathered: Gathered
    curves: dict[str, dict[str, curves.Curve]]
    tables: tuple[Table, ...]
    events: tuple[Event, ...]
    accuracies: dict[str, Floats]  # by arm: seeds by ranks, lowest first
    counted: dict[str, Floats]  # by arm: seeds by ranks, most often first
    shares: dict[str, Floats]  # by arm: seeds by ranks, largest share of the aggregation first
    attended: dict[str, Attendance]  # by arm: its first seed
    maps: dict[str, Any]

    def table(self, name: str) -> Table | None:
        """Return a table by its name."""
        return next((table for table in self.tables if table.name == name), None)


def contents(gathered: Gathered) -> Contents:
    """Work out everything a report shows."""
    for study in gathered.studies:
        check_can_show(study.rounds)
    accuracies, fair = _accuracies(gathered.arms)
    read = _Attended()
    packed = maps(gathered.arms, read, lambda arm, seed: arm.study.holdings(arm.own_name, seed))
    compared = gathered.comparison
    found = [] if compared is None else [comparison_table(compared)]
    if compared is not None and (tests := tests_table(compared)) is not None:
        found.append(tests)
    took_part = over_seeds("participation", "Who counted, mean over seeds", PARTS, read.frame(gathered.arms))
    found += [ledger(gathered), took_part]
    if (away := turned_away(gathered.arms)).rows:
        found.append(away)
    if len(fair):
        found.append(over_seeds("fairness", "Accuracy on the clients' own hold-outs, mean over seeds", FAIR, fair))
    each = by_client(gathered.arms)
    found += [table for table in (group_table(each), client_table(each)) if table is not None]
    return Contents(
        gathered=gathered,
        curves=curves.all_curves(gathered.arms),
        tables=tuple(found),
        events=events(gathered.arms),
        accuracies=accuracies,
        counted=read.ranked("counted"),
        shares=read.ranked("share"),
        attended=read.first,
        maps=packed,
    )


class _Attended:
    """Reads who took part in each run, and keeps what the tables and the ranks need of it."""

    def __init__(self) -> None:
        self.first: dict[str, Attendance] = {}
        self._figures: dict[tuple[str, int], dict[str, float]] = {}
        self._ranks: dict[tuple[str, int], dict[str, Floats]] = {}

    def __call__(self, arm: Arm, seed: int) -> Attendance:
        run = attendance.attendance(arm, seed)
        self.first.setdefault(arm.name, run)
        self._figures[arm.name, seed] = attendance.figures(run)
        if run.num_clients:
            by_rank = {"counted": run.times_answered.astype(np.float64), "share": run.share}
            self._ranks[arm.name, seed] = {
                what: fairness.ranked([np.sort(values)])[0][::-1] for what, values in by_rank.items()
            }
        return run

    def frame(self, arms: Sequence[Arm]) -> pd.DataFrame:
        """Return one row per run; runs that were not on a map are read now."""
        rows = []
        for arm in arms:
            for seed in arm.seeds:
                if (arm.name, seed) not in self._figures:
                    self(arm, seed)
                rows.append({"arm": arm.name, "seed": seed, **self._figures[arm.name, seed]})
        return pd.DataFrame(rows, columns=["arm", "seed", *PARTS])

    def ranked(self, what: str) -> dict[str, Floats]:
        """Return, by arm, one row per seed."""
        found: dict[str, list[Floats]] = {}
        for (arm, _), ranks in self._ranks.items():
            found.setdefault(arm, []).append(ranks[what])
        return {arm: np.array(rows) for arm, rows in found.items()}


def _accuracies(arms: Sequence[Arm]) -> tuple[dict[str, Floats], pd.DataFrame]:
    ranks, rows = {}, []
    for arm in arms:
        last = fairness.last_accuracies(arm)
        rows += [{"arm": arm.name, "seed": seed, **fairness.summary(values)} for seed, values in last.items()]
        if last:
            ranks[arm.name] = fairness.ranked(list(last.values()))
    return ranks, pd.DataFrame(rows, columns=["arm", "seed", *fairness.LABELS])


def events(arms: Sequence[Arm]) -> tuple[Event, ...]:
    """Return what happened, each text once, in the order in which it first happened."""
    rounds: dict[str, set[int]] = {}
    where: dict[str, set[int]] = {}
    runs: dict[str, set[tuple[int, int]]] = {}
    for place, arm in enumerate(arms):
        frame = rounds_of(arm)
        noted = frame[frame["events"].map(len) > 0]
        for seed, round, texts in zip(noted["seed"], noted["round"], noted["events"], strict=True):
            for text in map(_kind, texts):
                rounds.setdefault(text, set()).add(int(round))
                where.setdefault(text, set()).add(place)
                runs.setdefault(text, set()).add((place, int(seed)))
    found = [
        Event(text=text, rounds=tuple(sorted(at)), arms=tuple(sorted(where[text])), runs=len(runs[text]))
        for text, at in rounds.items()
    ]
    return tuple(sorted(found, key=lambda event: event.rounds[0]))


def _kind(text: str) -> str:
    """Return an event's text; shortages of different sizes are one kind of event."""
    return SHORTAGE.sub(r"fewer than \1 were asked: too few were up", text)


def as_json(found: Contents) -> dict[str, Any]:
    """Return the contents as plain values: no NaN, six digits."""
    places = {arm.name: place for place, arm in enumerate(found.gathered.arms)}
    axes = curves.used_axes(found.curves)
    return {
        "arms": list(places),
        "axes": [[axis, curves.AXES[axis]] for axis in axes],
        "metrics": [_metric(metric, by_arm, axes, places) for metric, by_arm in found.curves.items()],
        "marks": _marks(found.events),
        "ranks": _ranks(found, places),
        "forest": _forest(found.gathered, places),
        "maps": found.maps,
    }


def _metric(
    metric: str, by_arm: dict[str, curves.Curve], axes: Sequence[str], places: dict[str, int]
) -> dict[str, Any]:
    return {
        "label": curves.label_of(metric),
        "group": curves.group_of(metric),
        "share": metric in curves.SHARES,
        "curves": [_curve(curve, axes, places[arm]) for arm, curve in by_arm.items()],
    }


def _curve(curve: curves.Curve, axes: Sequence[str], arm: int) -> dict[str, Any]:
    kept = curves.thinned(len(curve.round))
    named = {"mean": curve.mean, "std": curve.std, "low": curve.low, "high": curve.high}
    x = [curve.round if axis == "round" else curve.costs[axis] for axis in axes]
    return {
        "arm": arm,
        "seeds": int(curve.seeds.max()),
        "x": [_plain(values[kept]) for values in x],
        **{name: _plain(values[kept]) for name, values in named.items()},
    }


def _marks(found: Sequence[Event]) -> list[dict[str, Any]]:
    texts: dict[int, list[str]] = {}
    arms: dict[int, set[int]] = {}
    for event in found:
        for round in event.rounds:
            texts.setdefault(round, []).append(event.text)
            arms.setdefault(round, set()).update(event.arms)
    rare = {round for event in found if len(event.rounds) <= RARE for round in event.rounds}
    tall = rare if len(rare) <= MOST_LINES else set()
    return [
        {"round": round, "texts": texts[round], "arms": sorted(arms[round]), "tall": round in tall}
        for round in sorted(texts)
    ]


def _ranks(found: Contents, places: dict[str, int]) -> list[dict[str, Any]]:
    told = (
        ("counted", found.counted, "clients, most often first", "times its answer counted", False),
        ("shares-ranked", found.shares, "clients, largest share first", "share of the aggregation", True),
        ("accuracies", found.accuracies, "clients, lowest first", "accuracy on the client's own hold-out", True),
    )
    return [
        {
            "key": key,
            "x": x_label,
            "y": y_label,
            "share": share,
            "curves": [_rank(rows, places[arm]) for arm, rows in by_arm.items()],
        }
        for key, by_arm, x_label, y_label, share in told
        if any(rows.any() for rows in by_arm.values())
    ]


def _rank(rows: Floats, arm: int) -> dict[str, Any]:
    curve: dict[str, Any] = {"arm": arm, "x": _plain(np.linspace(0, 1, rows.shape[1])), "mean": _plain(rows.mean(0))}
    return curve | ({"low": _plain(rows.min(0)), "high": _plain(rows.max(0))} if len(rows) > 1 else {})


def _forest(gathered: Gathered, places: dict[str, int]) -> dict[str, Any] | None:
    found = gathered.comparison
    if found is None:
        return None
    points = found.in_points
    unit = f"points of {found.metric}" if points else found.metric
    told = [(row.arm, row.difference) for row in found.rows if row.difference is not None]
    return {
        "rows": [{"arm": places[arm], "mean": d.mean, "low": d.low, "high": d.high} for arm, d in told],
        "label": f"{unit} from {found.baseline}",
        "points": points,
    }


def _plain(values: NDArray[Any]) -> list[float | int | None]:
    return [_rounded(float(value)) for value in values]


@cache
def _rounded(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1 << 53 else short
