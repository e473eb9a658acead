"""The numbers of a report: tables, curves, ranks, maps and events, and the same as plain values for JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from turnout.analysis.audit.words import Summary
from turnout.analysis.comparison import Comparison
from turnout.array_types import Floats, Ids
from turnout.journal.size_limits import check_can_show
from turnout.report import curves, fairness, participation
from turnout.report.appeal import appeal_table
from turnout.report.changes import by_arm, changes, changes_table, each_change_table
from turnout.report.client_tables import by_client, client_table, group_table
from turnout.report.comparison_tables import comparison_table, tests_table
from turnout.report.load_studies import Arm, Gathered, rounds_of
from turnout.report.models_used import Used, models_used
from turnout.report.objective import objective_table, objectives
from turnout.report.participation import Participation
from turnout.report.participation_encoding import maps
from turnout.report.personal import personal_table
from turnout.report.tables import (
    FAIRNESS,
    FAIRNESS_OF_LOSS,
    PARTICIPATION,
    Table,
    costs_table,
    outcomes_table,
    over_seeds,
    rejected_table,
)

DIGITS = 6
RARE = 3  # an event in no more rounds than this gets a vertical line in charts
MOST_LINES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in some rounds, such as arrivals or a cohort that could not be filled."""

    text: str
    rounds: tuple[int, ...]
    arms: tuple[int, ...]
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything that a report shows, except for its sentences."""

    gathered: Gathered
    curves: dict[str, dict[str, curves.Curve]]
    tables: tuple[Table, ...]
    events: tuple[Event, ...]
    accuracies: dict[str, Floats]  # by arm: seeds by ranks, lowest first
    updates_used: dict[str, Floats]  # by arm: seeds by ranks, most updates first
    shares: dict[str, Floats]  # by arm: seeds by ranks, largest share of the aggregation first
    first_runs: dict[str, Participation]  # by arm: who took part in its first seed
    objectives: tuple[Summary, ...]  # by arm: what it minimised; empty if there are too many clients to audit
    maps: dict[str, Any]
    models_used: tuple[Used, ...]  # of arms with several models: which each client trained
    around_changes: dict[str, Floats]  # by arm: seeds by time steps around a change of concept; empty: nothing changes

    def table(self, name: str) -> Table | None:
        """Return a table by its name."""
        return next((table for table in self.tables if table.name == name), None)


def contents(gathered: Gathered) -> Contents:
    """Compute everything that a report shows."""
    for study in gathered.studies:
        check_can_show(study.rounds)
    accuracies, by_run = _accuracies(gathered.arms)
    runs = _ParticipationReader()
    audited = objectives(gathered.arms)
    encoded_maps = maps(gathered.arms, runs.read, lambda arm, seed: arm.study.holdings(arm.own_name, seed))
    runs.read_rest(gathered.arms)
    tables = [*_comparison_tables(gathered), costs_table(gathered)]
    tables.append(over_seeds("participation", "Updates used per client, mean over seeds", PARTICIPATION, runs.frame()))
    tables.append(outcomes_table(runs.jobs))
    tables += [objective_table(audited)] if audited else []
    if (rejected := rejected_table(gathered.arms)).rows:
        tables.append(rejected)
    for name, of, columns in (("fairness", "Accuracy", FAIRNESS), ("fairness-loss", "Loss", FAIRNESS_OF_LOSS)):
        known = by_run[by_run[next(iter(columns))].notna()]
        if len(known):
            tables.append(over_seeds(name, f"{of} on the clients' own hold-outs, mean over seeds", columns, known))
    changed = changes(gathered.arms)
    own = (
        personal_table(gathered.arms),
        appeal_table(gathered.arms),
        changes_table(changed),
        each_change_table(changed),
    )
    tables += [table for table in own if table is not None]
    of_clients = by_client(gathered.arms)
    tables += [table for table in (group_table(of_clients), client_table(of_clients)) if table is not None]
    return Contents(
        gathered=gathered,
        curves=curves.all_curves(gathered.arms),
        tables=tuple(tables),
        events=events(gathered.arms),
        accuracies=accuracies,
        updates_used=runs.ranked("updates_used"),
        shares=runs.ranked("share"),
        first_runs=runs.first,
        objectives=audited,
        maps=encoded_maps,
        models_used=models_used(gathered.arms),
        around_changes=by_arm(changed),
    )


def _comparison_tables(gathered: Gathered) -> list[Table]:
    if gathered.comparison is None:
        return []
    tests = tests_table(gathered.comparison)
    return [comparison_table(gathered.comparison), *([] if tests is None else [tests])]


class _ParticipationReader:
    """Reads who took part in each run once, and keeps the numbers that the tables and the ranks need."""

    def __init__(self) -> None:
        self.first: dict[str, Participation] = {}  # by arm: its first seed
        self.jobs: dict[str, Ids] = {}  # by arm: the number of jobs by outcome, over all seeds
        self._figures: dict[tuple[str, int], dict[str, float]] = {}
        self._ranks: dict[tuple[str, int], dict[str, Floats]] = {}

    def read(self, arm: Arm, seed: int) -> Participation:
        """Read one run."""
        run = participation.participation(arm, seed)
        self.first.setdefault(arm.name, run)
        if (arm.name, seed) not in self._figures:
            self.jobs[arm.name] = self.jobs.get(arm.name, 0) + run.outcomes
        self._figures[arm.name, seed] = participation.figures(run)
        if run.num_clients:
            by_client = {"updates_used": run.times_answered.astype(np.float64), "share": run.share}
            self._ranks[arm.name, seed] = {
                name: fairness.ranked([np.sort(values)])[0][::-1] for name, values in by_client.items()
            }
        return run

    def read_rest(self, arms: Sequence[Arm]) -> None:
        """Read the runs that are not on a map, and put all of them in the order of the arms."""
        for arm in arms:
            for seed in arm.seeds:
                if (arm.name, seed) not in self._figures:
                    self.read(arm, seed)
        self._figures = {(arm.name, seed): self._figures[arm.name, seed] for arm in arms for seed in arm.seeds}
        self.jobs = {arm.name: self.jobs[arm.name] for arm in arms if arm.name in self.jobs}

    def frame(self) -> pd.DataFrame:
        """Return one row per run."""
        rows = [{"arm": arm, "seed": seed, **figures} for (arm, seed), figures in self._figures.items()]
        return pd.DataFrame(rows, columns=["arm", "seed", *PARTICIPATION])

    def ranked(self, name: str) -> dict[str, Floats]:
        """Return, by arm, the values by rank: one row per seed."""
        by_arm: dict[str, list[Floats]] = {}
        for (arm, _), ranks in self._ranks.items():
            by_arm.setdefault(arm, []).append(ranks[name])
        return {arm: np.array(rows) for arm, rows in by_arm.items()}


def _accuracies(arms: Sequence[Arm]) -> tuple[dict[str, Floats], pd.DataFrame]:
    ranks, rows = {}, []
    for arm in arms:
        last = fairness.last_accuracies(arm)
        rows += [{"arm": arm.name, "seed": seed, **figures} for seed, figures in fairness.last_figures(arm).items()]
        if last:
            ranks[arm.name] = fairness.ranked(list(last.values()))
    return ranks, pd.DataFrame(rows, columns=["arm", "seed", *fairness.LABELS])


def events(arms: Sequence[Arm]) -> tuple[Event, ...]:
    """Return the events of all arms, each text once, in the order in which they first happened."""
    rounds: dict[str, set[int]] = {}
    where: dict[str, set[int]] = {}
    runs: dict[str, set[tuple[int, int]]] = {}
    for place, arm in enumerate(arms):
        frame = rounds_of(arm)
        eventful = frame[frame["events"].map(len) > 0]
        for seed, round, texts in zip(eventful["seed"], eventful["round"], eventful["events"], strict=True):
            for text in texts:
                rounds.setdefault(text, set()).add(int(round))
                where.setdefault(text, set()).add(place)
                runs.setdefault(text, set()).add((place, int(seed)))
    merged = [
        Event(text=text, rounds=tuple(sorted(at)), arms=tuple(sorted(where[text])), runs=len(runs[text]))
        for text, at in rounds.items()
    ]
    return tuple(sorted(merged, key=lambda event: event.rounds[0]))


def as_json(contents: Contents) -> dict[str, Any]:
    """Return the contents as plain values: six digits, None for NaN."""
    places = {arm.name: place for place, arm in enumerate(contents.gathered.arms)}
    axes = curves.used_axes(contents.curves)
    return {
        "arms": list(places),
        "axes": [[axis, curves.AXES[axis]] for axis in axes],
        "metrics": [_metric(metric, by_arm, axes, places) for metric, by_arm in contents.curves.items()],
        "marks": _marks(contents.events),
        "ranks": _ranks(contents, places),
        "forest": _forest(contents.gathered, places),
        "maps": contents.maps,
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
    points = curves.thinned(len(curve.round))
    series = {"mean": curve.mean, "std": curve.std, "low": curve.low, "high": curve.high}
    x = [curve.round if axis == "round" else curve.costs[axis] for axis in axes]
    return {
        "arm": arm,
        "seeds": int(curve.seeds.max()),
        "x": [_plain(values[points]) for values in x],
        **{name: _plain(values[points]) for name, values in series.items()},
    }


def _marks(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return the marks of events in charts, by round: a vertical line for rare events, a tick for others."""
    texts: dict[int, list[str]] = {}
    arms: dict[int, set[int]] = {}
    for event in events:
        for round in event.rounds:
            texts.setdefault(round, []).append(event.text)
            arms.setdefault(round, set()).update(event.arms)
    rare = {round for event in events if len(event.rounds) <= RARE for round in event.rounds}
    tall = rare if len(rare) <= MOST_LINES else set()
    return [
        {"round": round, "texts": texts[round], "arms": sorted(arms[round]), "tall": round in tall}
        for round in sorted(texts)
    ]


class Ranked(NamedTuple):
    """Values of clients in order, for one chart."""

    name: str
    by_arm: dict[str, Floats]  # seeds by ranks
    x_label: str
    y_label: str
    is_share: bool


def ranked_charts(contents: Contents) -> tuple[Ranked, ...]:
    """Return the charts that show clients in order."""
    accuracy = "accuracy on the client's own hold-out"
    return (
        Ranked("updates-used", contents.updates_used, "clients, most updates first", "updates used", is_share=False),
        Ranked("shares", contents.shares, "clients, largest share first", "share of the aggregation", is_share=True),
        Ranked("accuracies", contents.accuracies, "clients, lowest accuracy first", accuracy, is_share=True),
    )


def _ranks(contents: Contents, places: dict[str, int]) -> list[dict[str, Any]]:
    return [
        {
            "key": chart.name,
            "x": chart.x_label,
            "y": chart.y_label,
            "share": chart.is_share,
            "curves": [_rank(rows, places[arm]) for arm, rows in chart.by_arm.items()],
        }
        for chart in ranked_charts(contents)
        if any(rows.any() for rows in chart.by_arm.values())
    ]


def _rank(rows: Floats, arm: int) -> dict[str, Any]:
    curve: dict[str, Any] = {"arm": arm, "x": _plain(np.linspace(0, 1, rows.shape[1])), "mean": _plain(rows.mean(0))}
    return curve | ({"low": _plain(rows.min(0)), "high": _plain(rows.max(0))} if len(rows) > 1 else {})


def _forest(gathered: Gathered, places: dict[str, int]) -> dict[str, Any] | None:
    """Return the differences from the baseline, for the chart of intervals."""
    comparison = gathered.comparison
    if comparison is None:
        return None
    differences = [(row.arm, row.difference) for row in comparison.rows if row.difference is not None]
    return {
        "rows": [{"arm": places[arm], "mean": d.mean, "low": d.low, "high": d.high} for arm, d in differences],
        "label": difference_label(comparison),
        "points": comparison.in_points,
    }


def difference_label(comparison: Comparison) -> str:
    """Return the label of an axis of differences from the baseline."""
    unit = f"points of {comparison.metric}" if comparison.in_points else comparison.metric
    return f"{unit} from {comparison.baseline}"


def _plain(values: NDArray[Any]) -> list[float | int | None]:
    return [_rounded(float(value)) for value in values]


@cache
def _rounded(value: float) -> float | int | None:
    if not np.isfinite(value):
        return None
    short = float(f"{value:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1 << 53 else short
