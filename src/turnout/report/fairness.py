"""How evenly a model serves its clients: the worst, the best, and Jain's index of their accuracies.

    worst 10 %   mean of the ⌈n/10⌉ lowest accuracies           best 10 %   of the ⌈n/10⌉ highest
    Jain         (Σ a_i)² / (n Σ a_i²)                          1: all alike; 1/n: one client has everything

Reference: Jain, Chiu, Hawe. A quantitative measure of fairness. DEC technical report 301, 1984.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from turnout.array_types import Floats
from turnout.journal.codec import decode_floats
from turnout.report.load_studies import Arm, rows_of

SHARE = 0.1
RANKS = 101
LABELS = {
    "client_accuracy_worst": "accuracy, worst 10 % of clients",
    "client_accuracy_mean": "accuracy, mean over clients",
    "client_accuracy_best": "accuracy, best 10 % of clients",
    "client_accuracy_std": "accuracy, spread over clients (std)",
    "client_accuracy_jain": "Jain's index of client accuracies",
}


def jain(values: Floats) -> float:
    """Return Jain's index; NaN where every value is zero or there is none."""
    squares = float(np.square(values).sum())
    return float(values.sum() ** 2 / (len(values) * squares)) if squares > 0 else float("nan")


def edges(values: Floats, share: float = SHARE) -> tuple[float, float]:
    """Return the mean of the lowest share of the values, and of the highest."""
    ordered = np.sort(values)
    count = int(np.ceil(share * len(ordered)))
    return float(ordered[:count].mean()), float(ordered[len(ordered) - count :].mean())


def summary(accuracies: Floats) -> dict[str, float]:
    """Return the figures of one model; clients without a hold-out (NaN) are left out."""
    known = accuracies[np.isfinite(accuracies)]
    if not len(known):
        return dict.fromkeys(LABELS, float("nan"))
    worst, best = edges(known)
    figures = (worst, float(known.mean()), best, float(known.std()), jain(known))
    return dict(zip(LABELS, figures, strict=True))


def over_rounds(arm: Arm) -> pd.DataFrame:
    """Return one row per run and round in which every client was measured."""
    rows = [
        {"seed": seed, "round": round, **summary(decode_floats(blob, total))}
        for seed in arm.seeds
        for round, total, blob in rows_of(arm, seed, "round, num_clients, client_accuracy")
        if blob is not None
    ]
    return pd.DataFrame(rows, columns=["seed", "round", *LABELS])


def last_accuracies(arm: Arm) -> dict[int, Floats]:
    """Return each seed's client accuracies in the last round that measured them, lowest first."""
    found: dict[int, Floats] = {}
    for seed in arm.seeds:
        measured = [row for row in rows_of(arm, seed, "client_accuracy, num_clients") if row[0] is not None]
        if measured:
            values = decode_floats(*measured[-1])
            known = np.sort(values[np.isfinite(values)])
            if len(known):
                found[seed] = known
    return found


def ranked(values: Sequence[Floats], ranks: int = RANKS) -> Floats:
    """Return each run's values by rank, stretched to the same number of ranks: one row per run."""
    places = np.linspace(0.0, 1.0, ranks)
    return np.array([np.quantile(each, places, method="inverted_cdf") for each in values])
