"""How even the accuracy is over clients: the mean of the worst and of the best tenth, and Jain's index.

    worst 10 %   mean of the ⌈n/10⌉ lowest accuracies           best 10 %   of the ⌈n/10⌉ highest
    Jain         (Σ a_i)² / (n Σ a_i²)                          1: all alike; 1/n: one client has everything

Reference: Jain, Chiu, Hawe. A quantitative measure of fairness. DEC technical report 301, 1984.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pandas as pd

from turnout.array_types import Floats
from turnout.report.load_studies import Arm

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
    """Return the figures of one model's accuracies by client; clients without a hold-out (NaN) are left out."""
    known = accuracies[np.isfinite(accuracies)]
    if not len(known):
        return dict.fromkeys(LABELS, float("nan"))
    worst, best = edges(known)
    figures = (worst, float(known.mean()), best, float(known.std()), jain(known))
    return dict(zip(LABELS, figures, strict=True))


def over_rounds(arm: Arm) -> pd.DataFrame:
    """Return one row per run and round that evaluated every client."""
    rows = [
        {"seed": seed, "round": round, **summary(accuracy)}
        for seed in arm.seeds
        for round, accuracy in arm.study.round_accuracy(arm.own_name, seed)
    ]
    return pd.DataFrame(rows, columns=["seed", "round", *LABELS])


def last_accuracies(arm: Arm) -> dict[int, Floats]:
    """Return, by seed, the accuracies of the clients in the last round that evaluated them, lowest first."""
    accuracies: dict[int, Floats] = {}
    for seed in arm.seeds:
        last = last_accuracy(arm, seed)
        known = np.sort(last[np.isfinite(last)])
        if len(known):
            accuracies[seed] = known
    return accuracies


def last_accuracy(arm: Arm, seed: int) -> Floats:
    """Return the accuracy by client in the last round that evaluated every client; empty if none did."""
    evaluated = deque(arm.study.round_accuracy(arm.own_name, seed), maxlen=1)
    return evaluated[0][1] if evaluated else np.zeros(0)


def ranked(values: Sequence[Floats], ranks: int = RANKS) -> Floats:
    """Return each run's values by rank, stretched to the same number of ranks: one row per run."""
    places = np.linspace(0.0, 1.0, ranks)
    return np.array([np.quantile(each, places, method="inverted_cdf") for each in values])
