"""Accuracy around changes of concept: of the clients that change, before, at and after their change, by arm.

A client's change lies between two time steps. `before` is the last measurement on samples of the old concept. `at the
change` is the first one on samples of the new concept, with models that have not been trained on it. `after k` is the
last measurement on the samples that come k time steps later, when models have been trained on k time steps of the new
concept. A client that changes again before that is left out.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from turnout import number_format
from turnout.array_types import Floats, Ids
from turnout.drift import Drift
from turnout.report import svg
from turnout.report.load_studies import Arm
from turnout.report.tables import Column, Table, over_seeds

OFFSETS = (-1, 0, 1, 2, 3)  # time steps from a change to the samples that a model is measured on
BEFORE, AT = OFFSETS[:2]
NAMES = {BEFORE: "before", AT: "at the change", **{k: f"after {k}" for k in OFFSETS[2:]}}
TITLE = "Accuracy of the clients that change their concept, mean over changes and seeds"
BY_CHANGE = "The same for each change, mean over seeds"
COLUMNS = {name: Column(name, number_format.percent, number_format.spread_percent) for name in NAMES.values()}


class Change(NamedTuple):
    """The accuracies around a change of some clients in one run."""

    arm: str
    seed: int
    step: int  # the first time step with the new concepts
    round: int  # the first round in which clients train on them
    accuracy: Floats  # (clients that change, offsets); NaN where it was not measured


def changes(arms: Sequence[Arm]) -> tuple[Change, ...]:
    """Return the changes of all runs whose data drift and whose clients were measured at some offset."""
    found = [change for arm in arms for seed in arm.seeds for change in _of_run(arm, seed)]
    return tuple(change for change in found if np.isfinite(change.accuracy).any())


def _of_run(arm: Arm, seed: int) -> list[Change]:
    facts = arm.study.holdings(arm.own_name, seed)
    if facts is None or facts.drift is None:
        return []
    drift = facts.drift
    measured = list(arm.study.round_by_client("client_accuracy", arm.own_name, seed))
    steps = np.array([drift.measured_step(round) for round, _ in measured], dtype=np.int64)
    values = np.stack([values for _, values in measured]) if measured else np.zeros((0, len(drift.sizes)))
    return [
        Change(arm.name, seed, step, step * drift.rounds_per_step + 1, around(drift, step, steps, values))
        for step in range(1, drift.num_steps + 1)
        if (drift.concepts[:, step] != drift.concepts[:, step - 1]).any()
    ]


def around(drift: Drift, step: int, steps: Ids, values: Floats) -> Floats:
    """Return the accuracy of each client that changes at a time step, at each offset.

    Args:
        drift: which client has which concept when.
        step: the first time step with the new concepts.
        steps: of each measurement, the time step of its samples, ascending.
        values: of each measurement, the accuracy of each client.
    """
    clients = np.flatnonzero(drift.concepts[:, step] != drift.concepts[:, step - 1])
    found: Floats = np.full((len(clients), len(OFFSETS)), np.nan)
    for column, offset in enumerate(OFFSETS):
        here = np.flatnonzero(steps == step + offset)
        if not len(here):
            continue
        later = drift.concepts[clients, step : step + offset + 1]
        stays = (later == later[:, :1]).all(1) if offset > AT else np.ones(len(clients), dtype=bool)
        found[stays, column] = values[here[0] if offset == AT else here[-1], clients[stays]]
    return found


def by_arm(found: Sequence[Change]) -> dict[str, Floats]:
    """Return, by arm, the mean over all changes at each offset: one row per seed."""
    rows: dict[str, dict[int, list[Floats]]] = {}
    for change in found:
        rows.setdefault(change.arm, {}).setdefault(change.seed, []).append(change.accuracy)
    return {arm: np.array([_mean(np.concatenate(each)) for each in seeds.values()]) for arm, seeds in rows.items()}


def _mean(values: Floats) -> Floats:
    """Return the mean of each column over what is known; NaN where nothing is."""
    known = np.isfinite(values)
    mean: Floats = np.full(values.shape[1], np.nan)
    np.divide(np.where(known, values, 0.0).sum(0), known.sum(0), out=mean, where=known.any(0))
    return mean


def changes_table(found: Sequence[Change]) -> Table | None:
    """Return a row per arm, over all changes; None where nothing changes."""
    rows = [
        {"arm": arm, **dict(zip(NAMES.values(), row, strict=True))}
        for arm, values in by_arm(found).items()
        for row in values
    ]
    return over_seeds("changes", TITLE, COLUMNS, pd.DataFrame(rows)) if rows else None


def each_change_table(found: Sequence[Change]) -> Table | None:
    """Return a row per change and arm; None where nothing changes."""
    keys = dict.fromkeys((change.round, change.arm) for change in sorted(found, key=lambda change: change.round))
    rows, raw = [], []
    for round, arm in keys:
        values = [change.accuracy for change in found if (change.round, change.arm) == (round, arm)]
        means, clients = _mean(np.concatenate(values)).tolist(), len(values[0])
        rows.append([arm, str(round), str(clients), *map(number_format.percent, means)])
        raw.append({"arm": arm, "round": round, "clients": clients, **dict(zip(NAMES.values(), means, strict=True))})
    headings = ["arm", "trained on from round", "clients", *NAMES.values()]
    return (
        Table(name="each-change", title=BY_CHANGE, headings=headings, rows=rows, raw=pd.DataFrame(raw))
        if rows
        else None
    )


def changes_figure(values: Mapping[str, Floats], places: Mapping[str, int]) -> str:
    """Return a line per arm over the time steps around a change; the band is the range over seeds."""
    lines = []
    for arm, rows in values.items():
        known = np.isfinite(rows).any(0)
        x, shown = np.array(OFFSETS, dtype=np.float64)[known], rows[:, known]
        band = (np.nanmin(shown, 0), np.nanmax(shown, 0)) if len(rows) > 1 else (None, None)
        lines.append(svg.Line(name=arm, place=places[arm], x=x, y=_mean(shown), low=band[0], high=band[1]))
    y_label = "accuracy of the clients that change"
    axes = svg.Axes(x_label="time steps since the change", y_label=y_label, y_percent=True, marks=(AT,))
    return svg.line_figure(lines, axes)
