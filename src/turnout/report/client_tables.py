"""Tables of the accuracy of each client and of each group of clients, for data that names or groups its clients."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from turnout import number_format
from turnout.report.fairness import last_accuracy
from turnout.report.load_studies import Arm
from turnout.report.tables import Table

MOST_CLIENTS = 200  # in a table on the page; turnout.load has all of them
COLUMNS = ("arm", "seed", "client", "group", "accuracy")


def by_client(arms: Sequence[Arm]) -> pd.DataFrame:
    """Return the last accuracy of each client, for runs whose clients have names or groups."""
    parts = [part for arm in arms for seed in arm.seeds for part in _of_run(arm, seed)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(COLUMNS))


def _of_run(arm: Arm, seed: int) -> Iterator[pd.DataFrame]:
    facts = arm.study.holdings(arm.own_name, seed)
    if facts is None or (facts.client_names is None and facts.client_groups is None):
        return
    accuracy = last_accuracy(arm, seed)
    if len(accuracy) != len(facts.sizes) or not np.isfinite(accuracy).any():
        return
    names = facts.client_names or tuple(map(str, range(len(accuracy))))
    groups = facts.client_groups or ("",) * len(accuracy)
    values = {"arm": arm.name, "seed": seed, "client": list(names), "group": list(groups), "accuracy": accuracy}
    yield pd.DataFrame(values)


def client_table(frame: pd.DataFrame) -> Table | None:
    """Return one row per client with its accuracy in each arm, mean over seeds; None if there are too many clients."""
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
    """Return one row per arm and group: its number of clients and their mean accuracy; None without groups."""
    if frame.empty or not frame["group"].any():
        return None
    runs = frame.groupby(["arm", "group", "seed"], sort=False)["accuracy"].agg(["count", "mean"]).reset_index()
    groups = runs.groupby(["arm", "group"], sort=False).agg(
        clients=("count", "mean"), accuracy_mean=("mean", "mean"), accuracy_std=("mean", "std")
    )
    raw = groups.reset_index()

    rows = [
        [arm, group, number_format.number(clients), number_format.spread_percent(mean, std)]
        for arm, group, clients, mean, std in raw.itertuples(index=False)
    ]
    title = "Accuracy by group of clients, mean over seeds"
    return Table(name="groups", title=title, headings=["arm", "group", "clients", "accuracy"], rows=rows, raw=raw)
