"""Compare arms: their final values, the differences with intervals and tests, and their costs to reach a target."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from turnout.analysis.comparable_arms import Config, check_comparable, measured_apart, measured_on, unshared
from turnout.analysis.comparison import Comparison, Row, never_reached_note, of
from turnout.analysis.differences import Pair, Seeds, decide
from turnout.analysis.statistics import (
    Difference,
    Reached,
    Summary,
    first_reached,
    summarise,
    to_target,
)
from turnout.analysis.target import Target, target_of
from turnout.analysis.until_clear import planned_looks
from turnout.errors import ConfigError, JournalError
from turnout.journal.load import Loaded
from turnout.metrics import EVALUATED, METRICS, Metric, metric_named
from turnout.number_format import percent

__all__ = ["Comparison", "Row", "compare", "names_of_arms", "recorded_target"]

DEFAULT_SHARE = 0.95  # the default target is this share of the way to the best arm's final mean
COSTS = {
    "round": "round",
    "bytes": "cumulative_bytes",
    "gradient_evaluations": "cumulative_gradient_evaluations",
    "sim_seconds": "cumulative_sim_seconds",
}
REPLAYED = "replay_recorded"  # the metric of rounds that replay a recorded run
POINTS = 12  # of a curve in blocks

Curves = dict[int, pd.DataFrame]  # by seed: the measured rounds, with the metric as "value"


def recorded_target(studies: Sequence[Loaded]) -> Target | None:
    """Return the target in a study's journal; None if there is none, or if there are several studies."""
    return target_of(studies[0].study["config"].get("target")) if len(studies) == 1 else None


def compare(
    loaded: Sequence[Loaded] | Loaded,
    *,
    metric: str | None = None,
    baseline: str | None = None,
    target: Target | Mapping[str, float] | None = None,
) -> Comparison:
    """Compare the arms of one study, or of several, over their finished runs.

    Args:
        loaded: one or several studies that `turnout.load` returned.
        metric: the metric to compare; by default accuracy if it was measured, else loss.
        baseline: the arm that the others are compared with; by default the first.
        target: the value up to which costs are counted, for example {"accuracy": 0.8}; by default 95 % of the best
            arm's final mean (for a loss: 95 % of the way from the first evaluation to it).
    """
    studies = [loaded] if isinstance(loaded, Loaded) else list(loaded)
    measured = metric_named(_metric(studies, metric))
    whole, notes = _arms(studies, measured.name)
    baseline = _baseline(whole, baseline)
    configs = _configs(studies, whole)
    check_comparable(configs, baseline, measured.name)
    apart = _apart(studies, whole, baseline, measured.name)
    arms, cut = _until_common_round(whole, measured.name)
    alike = {arm: curves for arm, curves in arms.items() if apart[arm] is None}
    goal, origin = target_of(target), "as given"
    if goal is None:
        goal, origin = _default_target(alike, measured)
    looks = planned_looks(studies[0].study["config"]) if len(studies) == 1 else None
    differences = _differences(alike, configs, baseline, looks)
    aims = {} if goal is None else _apart(studies, whole, baseline, goal.metric)
    costs = {} if goal is None else _costs_by_arm(studies, whole, measured.name, goal)
    costs = {arm: each for arm, each in costs.items() if aims[arm] is None}
    base = arms[baseline]
    rows = tuple(
        replace(
            _row(arm, curves, differences.get(arm), costs.get(arm, {}), shared=len(curves.keys() & base.keys())),
            apart=apart[arm],
        )
        for arm, curves in arms.items()
    )
    return Comparison(
        metric=measured.name,
        higher_is_better=measured.higher_is_better,
        baseline=baseline,
        rows=rows,
        target=goal,
        target_origin=origin,
        notes=(
            *notes,
            *cut,
            *_row_notes(rows),
            *_look_notes(rows, studies, looks),
            *_unpaired_notes(rows, configs, baseline),
            *_replay_notes(studies),
            *_study_notes(studies),
        ),
    )


class FinalValues(NamedTuple):
    """The final value of each finished run, by arm and seed."""

    metric: str
    arms: dict[str, dict[int, float]]
    configs: dict[str, Config]
    measured_on: dict[str, str]

    def apart(self, arm: str, other: str) -> str | None:
        """Return why two arms have no difference in the metric; None if they have."""
        return measured_apart(self.measured_on[arm], self.measured_on[other], self.metric)

    def are_paired(self, arm: str, other: str) -> bool:
        """Whether a seed gives both arms the same data and the same draws."""
        return unshared(self.configs[arm], self.configs[other]) is None


def final_values(studies: Sequence[Loaded], metric: str | None = None) -> FinalValues:
    """Return the values that arms end with, at the last round that all of them evaluated."""
    measured = _metric(studies, metric)
    whole, _ = _arms(studies, measured)
    configs = _configs(studies, whole)
    check_comparable(configs, _baseline(whole, None), measured)
    arms, _ = _until_common_round(whole, measured)
    finals = {arm: _finals(curves) for arm, curves in arms.items()}
    return FinalValues(measured, finals, configs, _measured_on(studies, whole))


def _row(arm: str, curves: Curves, difference: Difference | None, costs: dict[str, Reached], *, shared: int) -> Row:
    return Row(
        arm=arm,
        shared=shared,
        final=_summary(curves),
        diverged=sum(not np.isfinite(value) for value in _finals(curves).values()),
        absent=sum(int(curve["answers"].iloc[0]) == 0 for curve in curves.values()),
        difference=difference,
        to_target=costs,
        curve=_few_points(curves),
    )


def _differences(
    arms: Mapping[str, Curves], configs: Mapping[str, Config], baseline: str, looks: Sequence[Seeds] | None
) -> dict[str, Difference]:
    """Return each arm's difference from the baseline, decided together."""
    base = _finals(arms[baseline])
    return decide(
        {
            arm: Pair(_finals(curves), base, unshared(configs[arm], configs[baseline]) is None)
            for arm, curves in arms.items()
            if arm != baseline
        },
        looks,
    )


def _metric(studies: Sequence[Loaded], metric: str | None) -> str:
    known = [_measured(study) for study in studies]
    shared = set.intersection(*known) if known else set()
    if metric is None:
        metric = "accuracy" if "accuracy" in shared else "loss"
        if metric not in shared:
            raise JournalError(
                "Nothing was measured in every arm that could be compared. Wait for the first evaluation, or name "
                "a metric."
            )
    if metric not in shared:
        names = ", ".join(sorted(shared)) or "none"
        raise ConfigError(f"There is no metric {metric!r} that every arm has. Choose one of: {names}.")
    return metric


def _measured(study: Loaded) -> set[str]:
    """Return the metrics that every arm of a study has; a measured accuracy is never NaN."""
    with_accuracy = study.rounds.groupby("arm")["accuracy"].count() > 0
    return set(study.metrics) - (set() if with_accuracy.all() else {"accuracy"})


def _arms(studies: Sequence[Loaded], metric: str) -> tuple[dict[str, Curves], list[str]]:
    """Return the finished curves of each arm, by unique name, and a note on unfinished runs."""
    arms: dict[str, Curves] = {}
    unfinished = 0
    for study, names in zip(studies, names_of_arms(studies), strict=True):
        done = study.runs[study.runs["status"] == "finished"]
        unfinished += len(study.runs) - len(done)
        wanted = set(zip(done["arm"], done["seed"], strict=True))
        answers = study.rounds.groupby(["arm", "seed"], sort=False)["answered"].transform("sum")
        measured = study.rounds["evaluated"] if metric in EVALUATED else study.rounds[metric].notna()
        for key, curve in study.rounds[measured].groupby(["arm", "seed"], sort=False):
            if key in wanted:
                arm, seed = curve["arm"].iloc[0], int(curve["seed"].iloc[0])
                arms.setdefault(names[arm], {})[seed] = curve.assign(value=curve[metric], answers=answers)
    if not arms:
        raise JournalError("No run is finished, so nothing can be compared yet. Wait, or resume the study.")
    return arms, [f"unfinished runs left out: {unfinished}"] if unfinished else []


def names_of_arms(studies: Sequence[Loaded]) -> list[dict[str, str]]:
    """Return, per study, the unique name of each arm; it includes the study's name if another study has the arm."""
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
        raise ConfigError(f"There is no finished arm {baseline!r}. Choose the baseline from: {', '.join(arms)}.")
    return baseline


def _configs(studies: Sequence[Loaded], arms: Mapping[str, Curves]) -> dict[str, Config]:
    """Return the settings that each arm was run with."""
    return _of_first_runs(studies, arms, "config")


def _measured_on(studies: Sequence[Loaded], arms: Mapping[str, Curves]) -> dict[str, str]:
    """Return what the loss and the accuracy of each arm are measured of and on."""
    return {arm: measured_on(facts) for arm, facts in _of_first_runs(studies, arms, "facts").items()}


def _apart(studies: Sequence[Loaded], arms: Mapping[str, Curves], baseline: str, metric: str) -> dict[str, str | None]:
    """Return for each arm why it is not compared with the baseline; None if it is."""
    where = _measured_on(studies, arms)
    return {arm: measured_apart(where[arm], where[baseline], metric) for arm in arms}


def _of_first_runs(studies: Sequence[Loaded], arms: Mapping[str, Curves], column: str) -> dict[str, Config]:
    """Return what the journal holds in this column for the first run of each arm."""
    found = {
        name: study.runs[study.runs["arm"] == arm][column].iloc[0]
        for study, names in zip(studies, names_of_arms(studies), strict=True)
        for arm, name in names.items()
    }
    return {arm: found[arm] for arm in arms}


def _until_common_round(arms: Mapping[str, Curves], metric: str) -> tuple[dict[str, Curves], list[str]]:
    """Return the curves up to the last round that every run evaluated, and a note if some runs are longer."""
    rounds = [set(curve["round"]) for curves in arms.values() for curve in curves.values()]
    common = set.intersection(*rounds) if metric in EVALUATED else {min(map(max, rounds))}
    last, longest = max(common, default=0), max(map(max, rounds))
    if last == longest:
        return dict(arms), []
    if last == 0 and metric in EVALUATED:
        raise ConfigError(
            "These runs have no evaluated round in common after round 0, so nothing can be compared. "
            "Run them for the same number of rounds, or with the same evaluate.every."
        )
    cut = {arm: {seed: _cut(curve, last) for seed, curve in curves.items()} for arm, curves in arms.items()}
    return cut, [f"compared at round {last}, the last that every run evaluated; the longest run has {longest} rounds"]


def _cut(curve: pd.DataFrame, last: int) -> pd.DataFrame:
    """Return a curve up to a round; a curve whose last value is not finite diverged, and its cut ends in NaN too."""
    shorter = curve[curve["round"] <= last]
    if np.isfinite(curve["value"].iloc[-1]):
        return shorter
    return shorter.assign(value=[*shorter["value"].iloc[:-1], np.nan])


def _finals(curves: Curves) -> dict[int, float]:
    return {seed: float(curve["value"].iloc[-1]) for seed, curve in sorted(curves.items())}


def _summary(curves: Curves) -> Summary:
    return summarise(np.array(list(_finals(curves).values()), dtype=np.float64))


def _few_points(curves: Curves) -> tuple[float | None, ...]:
    """Return the mean over seeds at a few rounds, with the first and the last."""
    table = pd.concat([curve.set_index("round")["value"] for curve in curves.values()], axis=1)
    means = table.mean(axis=1, skipna=False).sort_index().to_numpy()
    places = np.unique(np.linspace(0, len(means) - 1, min(len(means), POINTS)).round().astype(np.int64))
    return tuple(float(value) if np.isfinite(value) else None for value in means[places])


def _default_target(arms: Mapping[str, Curves], metric: Metric) -> tuple[Target | None, str]:
    """Return a target that the best arm reaches, and its origin in words; None if no client took part."""
    trained = [curves for curves in arms.values() if any(curve["answers"].iloc[0] for curve in curves.values())]
    means = [mean for mean in (_summary(curves).mean for curves in trained) if mean is not None]
    if not means or metric.higher_is_better is None:
        return None, ""
    share = f"{100 * DEFAULT_SHARE:.0f} %"
    if metric.higher_is_better:
        best = max(means)
        origin = f"{share} of the best arm's final mean"
        return (Target(metric.name, DEFAULT_SHARE * best), origin) if best > 0 else (None, "")
    best = min(means)
    start = float(np.mean([curve["value"].iloc[0] for curves in arms.values() for curve in curves.values()]))
    if not np.isfinite(start) or start <= best:
        return None, ""
    way = f"{share} of the way from the start to the best arm's final mean"
    return Target(metric.name, start - DEFAULT_SHARE * (start - best)), way


def _costs_by_arm(
    studies: Sequence[Loaded], arms: Mapping[str, Curves], metric: str, target: Target
) -> dict[str, dict[str, Reached]]:
    """Return the costs of each arm to reach the target, over all its rounds."""
    curves = arms if target.metric == metric else _arms(studies, _metric(studies, target.metric))[0]
    higher = metric_named(target.metric).higher_is_better
    if higher is None:
        raise ConfigError(
            f"The target's metric must be one of which it is known whether higher is better, "
            f"{' or '.join(METRICS)}; got {target.metric!r:.40}. Change the target."
        )
    return {arm: _costs(curves.get(arm, {}), target.value, higher) for arm in arms}


def _costs(curves: Curves, target: float, higher: bool) -> dict[str, Reached]:
    """Return the round in which the target was reached, and every cost up to it."""
    firsts = [first_reached(curve["value"].to_numpy(), target, higher_is_better=higher) for curve in curves.values()]
    places = [-1 if first is None else first for first in firsts]  # −1: the last round of a seed that never reached it

    return {
        name: to_target(
            [float(curve[column].iloc[place]) for curve, place in zip(curves.values(), places, strict=True)],
            [first is not None for first in firsts],
        )
        for name, column in COSTS.items()
    }


def _study_notes(studies: Sequence[Loaded]) -> list[str]:
    """Return the remarks of studies of several seeds on their set-up, which affects the spread over seeds."""
    return list(dict.fromkeys(note for study in studies if study.runs["seed"].nunique() > 1 for note in study.notes))


def _replay_notes(studies: Sequence[Loaded]) -> list[str]:
    """Return for each arm that replays a recorded run which share of the asked work was recorded."""
    notes = []
    for study, names in zip(studies, names_of_arms(studies), strict=True):
        replayed = study.rounds[study.rounds[REPLAYED].notna()] if REPLAYED in study.metrics else study.rounds[:0]
        for arm, rounds in replayed.groupby("arm", sort=False):
            share = float(np.average(rounds[REPLAYED], weights=rounds["asked"].clip(lower=1)))
            notes.append(
                f"{names[str(arm)]}: {percent(share)} of the asked work was recorded, {percent(1 - share)} "
                "extrapolated from the clients' other rounds"
            )
    return notes


def _row_notes(rows: Sequence[Row]) -> list[str]:
    notes = []
    for row in rows:
        if (never_reached := never_reached_note(row)) is not None:
            notes.append(never_reached)
        if row.apart is not None:
            notes.append(f"{row.arm}: not compared: {row.apart}")
        if row.absent:
            notes.append(f"{row.arm}: no client took part in {of(row.absent, row.final.count)}")
        if row.diverged:
            notes.append(f"{row.arm}: diverged in {of(row.diverged, row.final.count)}")
        if row.difference is not None and row.difference.is_paired and row.shared < row.final.count:
            notes.append(f"{row.arm}: {of(row.shared, row.final.count)} shared with the baseline")
    return notes


def _look_notes(rows: Sequence[Row], studies: Sequence[Loaded], looks: Sequence[Seeds] | None) -> list[str]:
    """Return how seeds were added, and which arms were decided before the last seed was run."""
    added = [study for study in studies if planned_looks(study.study["config"]) is not None]
    if looks is None:
        return [f"{study.study['name']}: seeds were added until its own arms were clear" for study in added]
    counts = ", ".join(str(len(seeds)) for seeds in looks)
    notes = [f"seeds are added until every difference is clear, with looks at {counts} seeds (Pocock's boundary)"]
    for row in rows:
        if row.difference is not None and row.difference.is_clear and row.difference.seeds < row.shared:
            seeds = row.difference.seeds
            notes.append(
                f"{row.arm}: clear at {seeds} seeds, which its difference is of, and no longer at {row.shared}"
            )
    return notes


def _unpaired_notes(rows: Sequence[Row], configs: Mapping[str, Config], baseline: str) -> list[str]:
    not_paired = [row.arm for row in rows if row.difference is not None and not row.difference.is_paired]
    return [
        f"{arm}: not paired with {baseline}, because they differ in {unshared(configs[arm], configs[baseline])}; "
        "Welch's t-test and interval"
        for arm in not_paired
    ]
