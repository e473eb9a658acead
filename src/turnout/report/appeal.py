"""Appeal: the share of clients that the model of a round serves, F_k(x) < ρ_k, by arm.

`appeal` is over all members, where an availability rule has them measured; `cohort_appeal` is over the cohort, where
only an aggregation rule asks.
"""

from collections.abc import Sequence

import pandas as pd

from turnout import number_format
from turnout.report.load_studies import Arm, rounds_of
from turnout.report.tables import Column, Table, over_seeds

LABELS = {
    "appeal": "share of clients that the model serves",
    "cohort_appeal": "share of the cohort that the model serves",
}
TITLE = "Share of clients that the model of a round serves, mean over seeds"
TENTH = 0.1  # of the rounds, at the end
PERCENT = (number_format.percent, number_format.spread_percent)
COLUMNS = {
    "appeal_last": Column("last round", *PERCENT),
    "appeal_late": Column("last tenth of the rounds", *PERCENT),
    "appeal_best": Column("best round", *PERCENT),
    "cohort_appeal_late": Column("of the cohort, last tenth of the rounds", *PERCENT),
    "alone_accuracy": Column("accuracy of models trained alone", *PERCENT),
    "preferred_accuracy": Column("accuracy of the preferred model", *PERCENT),
    "up_late": Column("clients available, last tenth of the rounds", number_format.number, number_format.spread),
}


def appeal_table(arms: Sequence[Arm]) -> Table | None:
    """Return the table of the arms that know what clients require; None if there is none."""
    rows = [row for arm in arms for row in _rows(arm)]
    return over_seeds("appeal", TITLE, COLUMNS, pd.DataFrame(rows, columns=["arm", "seed", *COLUMNS])) if rows else None


def _rows(arm: Arm) -> list[dict[str, object]]:
    """Return the figures of each run of an arm; none if it does not know what clients require."""
    rounds = rounds_of(arm)
    rounds = rounds[rounds["round"] > 0]
    known = [name for name in LABELS if name in rounds and rounds[name].notna().any()]
    if not known:
        return []
    return [
        _figures(arm.name, seed, rounds[rounds["seed"] == seed], known) for seed in rounds["seed"].unique().tolist()
    ]


def _figures(arm: str, seed: int, run: pd.DataFrame, known: Sequence[str]) -> dict[str, object]:
    run = run.sort_values("round")
    late = run[run["round"] > (1 - TENTH) * run["round"].max()]
    row: dict[str, object] = {"arm": arm, "seed": seed, "up_late": float(late["up"].mean())}
    row |= {f"{name}_late": float(late[name].mean()) for name in known}
    for name in ("alone_accuracy", "preferred_accuracy"):
        if name in run and run[name].notna().any():
            row[name] = float(run[name].dropna().iloc[-1])
    if "appeal" in known:
        row |= {"appeal_last": float(run["appeal"].iloc[-1]), "appeal_best": float(run["appeal"].max())}
    return row
