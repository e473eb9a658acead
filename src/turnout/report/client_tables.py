"""Accuracy client by client and group by group, where the clients of a study have names or groups."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from turnout import number_format
from turnout.journal.codec import decode_floats
from turnout.report.load_studies import Arm, rows_of
from turnout.report.tables import Table

MOST_CLIENTS = 200  # more are in the frames of turnout.load alone
COLUMNS = ("arm", "seed", "client", "group", "accuracy")


def by_client(arms: Sequence[Arm]) -> pd.DataFrame:
    """Return the accuracy of each client in the last round that measured it; of runs with names or groups."""
    parts = [part for arm in arms for seed in arm.seeds for part in _of_run(arm, seed)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))


def _of_run(arm: Arm, seed: int) -> Iterator[pd.DataFrame]:
    held = arm.study.holdings(arm.own_name, seed)
    if held is None or (held.client_names is None and held.client_groups is None):
        return
    blobs = [blob for (blob,) in rows_of(arm, seed, "client_accuracy") if blob is not None]
    accuracy = decode_floats(blobs[-1], len(held.sizes)) if blobs else np.zeros(0)
    if len(accuracy) != len(held.sizes) or not np.isfinite(accuracy).any():
        return
    names = held.client_names or tuple(map(str, range(len(accuracy))))
    groups = held.client_groups or ("",) * len(accuracy)
    values = {"arm": arm.name, "seed": seed, "client": list(names), "group": list(groups), "accuracy": accuracy}
    yield pd.DataFrame(values)


def client_table(frame: pd.DataFrame) -> Table | None:
    """Return one row per client with its accuracy under each arm, the mean over seeds; None where there are many."""
    if frame.empty or frame["client"].nunique() > MOST_CLIENTS:
        return None
    keys = ["client", "group"] if frame["group"].any() else ["client"]
    wide = frame.pivot_table(index=keys, columns="arm", values="accuracy", sort=False, dropna=False).dropna(how="all")
    wide = wide.reindex(columns=list(dict.fromkeys(frame["arm"]))).reset_index()
    rows = [
        [*map(str, row[: len(keys)]), *map(number_format.percent, row[len(keys) :])] for row in wide.to_numpy().tolist()
    ]
    title = "Accuracy of each client on its own hold-out, mean over seeds"
    return Table(name="clients", title=title, headings=list(wide.columns), rows=rows, raw=wide)


def group_table(frame: pd.DataFrame) -> Table | None:
    """Return one row per arm and group of clients: how many there are, and their mean accuracy; None without groups."""
    if frame.empty or not frame["group"].any():
        return None
    runs = frame.groupby(["arm", "group", "seed"], sort=False)["accuracy"].agg(["count", "mean"]).reset_index()
    found = runs.groupby(["arm", "group"], sort=False).agg(
        clients=("count", "mean"), accuracy_mean=("mean", "mean"), accuracy_std=("mean", "std")
    )
    raw = found.reset_index()
    rows = [
        [arm, group, number_format.number(clients), number_format.spread_percent(mean, std)]
        for arm, group, clients, mean, std in raw.itertuples(index=False)
    ]
    title = "Accuracy by group of clients, mean over seeds"
    return Table(name="groups", title=title, headings=["arm", "group", "clients", "accuracy"], rows=rows, raw=raw)
