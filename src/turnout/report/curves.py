"""Curves with bands: each metric over rounds and over every cost, mean and spread over seeds."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from turnout.array_types import Floats, Ids
from turnout.report import appeal, fairness
from turnout.report.load_studies import Arm, rounds_of

MOST_POINTS = 400
AXES = {
    "round": "rounds",
    "cumulative_bytes": "bytes, down + up",
    "cumulative_gradient_evaluations": "gradient evaluations",
    "cumulative_sim_seconds": "simulated seconds",
}
COUNTS = {"up": "clients available", "asked": "clients asked", "answered": "clients that answered"}
ACCEPTANCE = "filter_acceptance"
LABELS = {
    **COUNTS,
    ACCEPTANCE: "share of clients the filter kept",
    "filter_kept": "clients the filter kept",
    "filter_considered": "clients the filter considered",
    "server_lr": "server learning rate",
    "memory_bytes": "bytes of server memory",
    **fairness.LABELS,
    **appeal.LABELS,
}
EVALUATION, PARTICIPATION, FAIRNESS, RULES = "evaluation", "participation", "fairness", "metrics of the rules"
APPEAL = "appeal"
GROUPS = (EVALUATION, PARTICIPATION, FAIRNESS, APPEAL, RULES)
SHARES = ("accuracy", ACCEPTANCE, *fairness.SHARES, *appeal.LABELS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One metric of one arm: a point per round that measured it, over the seeds that have it."""

    round: Ids
    costs: dict[str, Floats]  # by axis: the mean cost up to the round
    mean: Floats  # NaN where a seed's value is not finite
    std: Floats  # ddof = 1; 0 with one seed
    low: Floats
    high: Floats
    seeds: Ids


def _measurements(arm: Arm) -> dict[str, pd.DataFrame]:
    """Return, by metric, the rounds in which it was measured, with the metric as "value"."""
    rounds = rounds_of(arm)
    frames: dict[str, pd.DataFrame] = {}
    for metric in arm.study.metrics:
        measured = rounds["evaluated"] if metric in ("loss", "accuracy") else rounds[metric].notna()
        frames[metric] = rounds[measured].assign(value=rounds[metric])
    if "filter_kept" in rounds:
        frames[ACCEPTANCE] = _acceptance(rounds)
    trained = rounds[rounds["round"] > 0]
    frames |= {name: trained.assign(value=trained[name].astype("float64")) for name in COUNTS}
    of_clients = fairness.over_rounds(arm)
    if not of_clients.empty:
        joined = rounds.merge(of_clients, on=["seed", "round"])
        frames |= {name: joined.assign(value=joined[name]) for name in fairness.LABELS}
    return {metric: frame for metric, frame in frames.items() if not frame.empty and frame["value"].notna().any()}


def group_of(metric: str) -> str:
    """Return the group under which the page lists a metric."""
    if metric in ("loss", "accuracy"):
        return EVALUATION
    if metric in COUNTS:
        return PARTICIPATION
    if metric in appeal.LABELS:
        return APPEAL
    return FAIRNESS if metric in fairness.LABELS else RULES


def label_of(metric: str) -> str:
    """Return the label of a metric on an axis."""
    return LABELS.get(metric, metric.replace("_", " "))


def curve(frame: pd.DataFrame) -> Curve:
    """Return the curve over the seeds of a frame; in NumPy, because pandas took seconds in reports of many arms."""
    rounds, row = np.unique(frame["round"].to_numpy(dtype=np.int64), return_inverse=True)
    seeds, column = np.unique(frame["seed"].to_numpy(), return_inverse=True)
    known = np.zeros((len(rounds), len(seeds)), dtype=bool)  # whether the run has this round
    known[row, column] = True
    values = np.zeros(known.shape)
    values[row, column] = frame["value"].to_numpy(dtype=np.float64)
    has_diverged, counts = ~np.isfinite(values).all(1), known.sum(1)
    values[has_diverged] = np.nan
    with np.errstate(over="ignore", invalid="ignore"):  # values of a model that diverges may be huge
        mean = values.sum(1) / counts
        squares = np.where(known, values - mean[:, None], 0.0) ** 2
        std = np.sqrt(squares.sum(1) / np.maximum(counts - 1, 1))
    return Curve(
        round=rounds,
        costs={axis: _mean_by(row, frame[axis].to_numpy(dtype=np.float64)) for axis in AXES if axis != "round"},
        mean=mean,
        std=std,
        low=np.where(known, values, np.inf).min(1),
        high=np.where(known, values, -np.inf).max(1),
        seeds=counts,
    )


def _mean_by(row: Ids, values: Floats) -> Floats:
    """Return the mean of each row's known values; NaN if it has none."""
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.bincount(row, np.where(known, values, 0.0)) / np.bincount(row, known)
    return mean


def all_curves(arms: Iterable[Arm]) -> dict[str, dict[str, Curve]]:
    """Return every curve by metric and arm; metrics in the order in which the page lists them."""
    by_metric: dict[str, dict[str, Curve]] = {}
    for arm in arms:
        for metric, frame in _measurements(arm).items():
            by_metric.setdefault(metric, {})[arm.name] = curve(frame)
    first = ["accuracy", "loss", *COUNTS, *fairness.LABELS]
    known = [metric for metric in first if metric in by_metric]
    others = [metric for metric in by_metric if metric not in known]
    ordered = sorted(known + others, key=lambda metric: GROUPS.index(group_of(metric)))
    return {metric: by_metric[metric] for metric in ordered}


def used_axes(curves: dict[str, dict[str, Curve]]) -> list[str]:
    """Return the axes on which a cost is above zero, and rounds."""
    shown = [each for by_arm in curves.values() for each in by_arm.values()]
    return ["round", *(axis for axis in AXES if axis != "round" and any((c.costs[axis] > 0).any() for c in shown))]


def thinned(count: int, most: int = MOST_POINTS) -> Ids:
    """Return the indices of at most `most` points, evenly spaced, with the first and the last."""
    places: Ids = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
    return places


def _acceptance(rounds: pd.DataFrame) -> pd.DataFrame:
    """Return the share of considered clients that the filter kept, in rounds that had a filter."""
    kept = rounds["filter_kept"]
    considered = rounds["filter_considered"] if "filter_considered" in rounds else kept * np.nan
    considered = considered.fillna(rounds["up"].astype("float64"))
    filtered = rounds[kept.notna() & (considered > 0)]
    return filtered.assign(value=(kept / considered)[filtered.index])
