"""The accuracy per client of the shared model, of clients' own models and of their mixtures, side by side."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from turnout import number_format
from turnout.report.fairness import edges, last_accuracy
from turnout.report.load_studies import Arm
from turnout.report.tables import Column, Table, over_seeds

TITLE = "Accuracy on the clients' own hold-outs with the shared model and with their own, mean over seeds"
COLUMNS = {
    "shared": Column("shared model", number_format.percent, number_format.spread_percent),
    "personal": Column("own model", number_format.percent, number_format.spread_percent),
    "mixture": Column("mixture", number_format.percent, number_format.spread_percent),
    "gain": Column("own minus shared", number_format.percent, number_format.spread_percent),
    "personal_worst": Column("own model, worst 10 %", number_format.percent, number_format.spread_percent),
    "better_off": Column("clients better off", number_format.percent, number_format.spread_percent),
}


def personal_table(arms: Sequence[Arm]) -> Table | None:
    """Return the table of all arms; None where no client has a model of its own with an accuracy."""
    rows = [row for arm in arms for seed in arm.seeds if (row := _row(arm, seed)) is not None]
    if not any("personal" in row for row in rows):
        return None
    return over_seeds("personal", TITLE, COLUMNS, pd.DataFrame(rows, columns=["arm", "seed", *COLUMNS]))


def _row(arm: Arm, seed: int) -> dict[str, object] | None:
    """Return the figures of one run; None where clients were not evaluated."""
    shared = last_accuracy(arm, seed)
    if not np.isfinite(shared).any():
        return None
    row: dict[str, object] = {"arm": arm.name, "seed": seed, "shared": float(np.nanmean(shared))}
    frame = arm.study.personal
    frame = frame[(frame["arm"] == arm.own_name) & (frame["seed"] == seed)]
    frame = frame[frame["round"] == frame["round"].max()]
    for kind in ("personal", "mixture"):
        values = frame.loc[frame["measure"] == f"{kind} accuracy", "value"].to_numpy(dtype=np.float64)
        known = values[np.isfinite(values)]
        if not len(known):
            continue
        row[kind] = float(known.mean())
        if kind == "personal":
            both = np.isfinite(values) & np.isfinite(shared)
            row["personal_worst"] = edges(known)[0]
            row["gain"] = float((values - shared)[both].mean())
            row["better_off"] = float((values > shared)[both].mean())
    return row
