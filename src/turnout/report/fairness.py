"""How evenly a model serves clients: accuracy and loss on each client's own hold-out, by client and by group.

    worst 10 %   mean over the ⌈n/10⌉ clients that are served worst: the lowest accuracies, the highest losses
    best 10 %    mean over the ⌈n/10⌉ clients that are served best
    spread       √((1/n) Σ (a_i − ā)²)
    Jain         (Σ a_i)² / (n Σ a_i²)                1: all alike; 1/n: one client has everything
    Gini         Σ_i Σ_j |a_i − a_j| / (2 n² ā)       0: all alike; 1 − 1/n: one client has everything
    parity gap   largest mean over a group of clients minus the smallest; 0: all groups are served alike

Reference: Jain, Chiu, Hawe. A quantitative measure of fairness. DEC technical report 301, 1984.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
import pandas as pd

from turnout.array_types import Floats
from turnout.journal.read_rounds import ByClient
from turnout.report.load_studies import Arm

SHARE = 0.1
RANKS = 101
FIGURES = {
    "worst": "{}, worst 10 % of clients",
    "mean": "{}, mean over clients",
    "best": "{}, best 10 % of clients",
    "std": "{}, spread over clients (std)",
    "jain": "Jain's index of client {}",
    "gini": "Gini's index of client {}",
    "parity": "{}, gap between groups of clients",
}
PLURALS = {"client_accuracy": ("accuracy", "accuracies"), "client_loss": ("loss", "losses")}
MEASURES: tuple[ByClient, ...] = ("client_accuracy", "client_loss")
INDICES = ("jain", "gini")
SHARES = tuple(f"client_accuracy_{figure}" for figure in FIGURES if figure not in INDICES)
LABELS = {
    f"{measure}_{figure}": text.format(PLURALS[measure][figure in INDICES])
    for measure in MEASURES
    for figure, text in FIGURES.items()
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


def gini(values: Floats) -> float:
    """Return Gini's index; NaN where every value is zero, one is negative, or there is none."""
    total, count = float(values.sum()), len(values)
    if not total > 0 or values.min() < 0:
        return float("nan")
    return float(2 * (np.arange(1, count + 1) @ np.sort(values)) / (count * total) - (count + 1) / count)


def parity_gap(values: Floats, groups: Sequence[str] | None) -> float:
    """Return the largest mean over a group minus the smallest; NaN without two groups that have values."""
    if groups is None:
        return float("nan")
    names = np.array(groups)
    known = np.isfinite(values)
    means = [float(values[known & (names == name)].mean()) for name in np.unique(names[known])]
    return max(means) - min(means) if len(means) > 1 else float("nan")


def summary(measure: ByClient, values: Floats, groups: Sequence[str] | None = None) -> dict[str, float]:
    """Return the figures of one model's accuracies or losses by client; clients without a hold-out (NaN) are left out.

    Args:
        measure: what the values are.
        values: one per client.
        groups: the group of each client; None if clients have none.
    """
    known = values[np.isfinite(values)]
    if not len(known):
        return {f"{measure}_{figure}": float("nan") for figure in FIGURES}
    low, high = edges(known)
    worst, best = (low, high) if measure == "client_accuracy" else (high, low)
    figures = (worst, float(known.mean()), best, float(known.std()), jain(known), gini(known))
    return {
        f"{measure}_{figure}": value
        for figure, value in zip(FIGURES, (*figures, parity_gap(values, groups)), strict=True)
    }


def over_rounds(arm: Arm) -> pd.DataFrame:
    """Return one row per run and round that evaluated every client."""
    rows: dict[tuple[int, int], dict[str, float]] = {}
    for seed in arm.seeds:
        facts = arm.study.holdings(arm.own_name, seed)
        groups = None if facts is None else facts.client_groups
        for measure in MEASURES:
            for round, values in arm.study.round_by_client(measure, arm.own_name, seed):
                rows.setdefault((seed, round), {}).update(summary(measure, values, groups))
    return pd.DataFrame(
        [{"seed": seed, "round": round, **figures} for (seed, round), figures in rows.items()],
        columns=["seed", "round", *LABELS],
    )


def last_figures(arm: Arm) -> dict[int, dict[str, float]]:
    """Return, by seed, the figures of the last round that evaluated every client."""
    last = over_rounds(arm).sort_values("round").groupby("seed").tail(1).to_dict("records")
    return {int(row["seed"]): {name: float(row[name]) for name in LABELS} for row in last}


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
    evaluated = deque(arm.study.round_by_client("client_accuracy", arm.own_name, seed), maxlen=1)
    return evaluated[0][1] if evaluated else np.zeros(0)


def ranked(values: Sequence[Floats], ranks: int = RANKS) -> Floats:
    """Return each run's values by rank, stretched to the same number of ranks: one row per run."""
    places = np.linspace(0.0, 1.0, ranks)
    return np.array([np.quantile(each, places, method="inverted_cdf") for each in values])
