"""Arms side by side: how good they end, how sure that is, and what it took to get to a target."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from turnout.errors import ConfigError, JournalError
from turnout.journal.load import Loaded
from turnout.streams import Floats, Streams
from turnout.study.comparison import Comparison, Row, of
from turnout.study.statistics import Paired, Reached, Summary, first_reached, holm, paired, summarise, to_target

__all__ = ["Comparison", "Row", "compare", "names_of_arms"]

SHARE = 0.95  # of the way to the best arm, for a target nobody gave
LOWER_IS_BETTER = ("loss", "error")
COSTS = {
    "round": "round",
    "bytes": "cumulative_bytes",
    "gradient_evaluations": "cumulative_gradient_evaluations",
    "sim_seconds": "cumulative_sim_seconds",
}
POINTS = 12  # of a curve on the way

Curves = dict[int, pd.DataFrame]  # by seed: the measured rounds, with the metric as "value"


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
    known = differences.values()
    t_tests = holm([None if each is None else each.t_test_p for each in known])
    signed_ranks = holm([None if each is None else each.signed_rank_p for each in known])
    corrected = dict(zip(differences, zip(t_tests, signed_ranks, strict=True), strict=True))
    return tuple(
        Row(
            arm=arm,
            final=_summary(curves),
            diverged=sum(not np.isfinite(value) for value in finals[arm].values()),
            absent=sum(int(curve["answers"].iloc[0]) == 0 for curve in curves.values()),
            difference=differences.get(arm),
            holm_p=corrected.get(arm, (None, None))[0],
            holm_signed_rank_p=corrected.get(arm, (None, None))[1],
            to_target={} if target is None else _costs(curves, target, higher),
            curve=_on_the_way(curves),
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
        answers = study.rounds.groupby(["arm", "seed"], sort=False)["answered"].transform("sum")
        measured = study.rounds["evaluated"] if metric in ("loss", "accuracy") else study.rounds[metric].notna()
        for key, curve in study.rounds[measured].groupby(["arm", "seed"], sort=False):
            if key in wanted:
                arm, seed = curve["arm"].iloc[0], int(curve["seed"].iloc[0])
                arms.setdefault(names[arm], {})[seed] = curve.assign(value=curve[metric], answers=answers)
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


def _on_the_way(curves: Curves) -> tuple[float | None, ...]:
    """Return the mean over seeds at a few rounds, the first and the last among them."""
    table = pd.concat([curve.set_index("round")["value"] for curve in curves.values()], axis=1)
    means = table.mean(axis=1, skipna=False).sort_index().to_numpy()
    places = np.unique(np.linspace(0, len(means) - 1, min(len(means), POINTS)).round().astype(np.int64))
    return tuple(float(value) if np.isfinite(value) else None for value in means[places])


def _target(arms: Mapping[str, Curves], higher: bool) -> tuple[float | None, str]:
    """Return a target that the best arm reaches, and where it comes from; none where no client ever took part."""
    learnt = [curves for curves in arms.values() if any(curve["answers"].iloc[0] for curve in curves.values())]
    means = [mean for mean in (_summary(curves).mean for curves in learnt) if mean is not None]
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
    firsts = [first_reached(curve["value"].to_numpy(), target, higher_is_better=higher) for curve in curves.values()]
    places = [-1 if first is None else first for first in firsts]  # one that never got there was stopped at its end
    return {
        name: to_target(
            [float(curve[column].iloc[place]) for curve, place in zip(curves.values(), places, strict=True)],
            [first is not None for first in firsts],
        )
        for name, column in COSTS.items()
    }


def _row_notes(rows: Sequence[Row]) -> list[str]:
    notes = []
    for row in rows:
        reached = row.to_target.get("round")
        if reached is not None and reached.reached < reached.seeds:
            notes.append(f"{row.arm}: {reached.seeds - reached.reached} of {reached.seeds} never reached it")
        if row.absent:
            notes.append(f"{row.arm}: no client ever took part in {of(row.absent, row.final.count)}")
        if row.diverged:
            notes.append(f"{row.arm}: diverged in {of(row.diverged, row.final.count)}")
        if row.difference is not None and row.difference.pairs < row.final.count:
            notes.append(f"{row.arm}: {of(row.difference.pairs, row.final.count)} shared with the baseline")
    return notes
