"""The curves of a study as arrays, one row per seed, to compute claims from."""

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import JournalError
from turnout.journal.load import Loaded

POINTS = 100.0  # per cent


def curve(loaded: Loaded, arm: str, metric: str = "accuracy") -> tuple[Ids, Floats]:
    """Return the measured rounds, and the metric as (seeds, rounds), seeds ascending."""
    frame = loaded.rounds
    mine = frame[
        (frame["arm"] == arm) & (frame["evaluated"] if metric in ("loss", "accuracy") else frame[metric].notna())
    ]
    if mine.empty:
        raise JournalError(f"Arm {arm!r} has no measurement of {metric}. The arms are {', '.join(loaded.arms)}.")
    table = mine.pivot(index="seed", columns="round", values=metric)
    return table.columns.to_numpy(), table.to_numpy()


def final(loaded: Loaded, arm: str, metric: str = "accuracy") -> Floats:
    """Return the last value of each seed."""
    values: Floats = curve(loaded, arm, metric)[1][:, -1]
    return values


def at(loaded: Loaded, arm: str, round: int, metric: str = "accuracy") -> Floats:
    """Return each seed's value at a round, or at the last measured round before it."""
    rounds, values = curve(loaded, arm, metric)
    found: Floats = values[:, max(int(np.searchsorted(rounds, round, side="right")) - 1, 0)]
    return found


def average(loaded: Loaded, arm: str, metric: str = "accuracy", last: int = 1) -> Floats:
    """Return each seed's mean over its last measurements."""
    return np.asarray(curve(loaded, arm, metric)[1][:, -last:].mean(axis=1))


def rounds_to(
    loaded: Loaded, arm: str, target: float | Floats, metric: str = "accuracy", *, rises: bool = True
) -> Floats:
    """Return the first round in which each seed reaches the target; one more than the last round if none does."""
    rounds, values = curve(loaded, arm, metric)
    level = np.broadcast_to(np.asarray(target, dtype=float), len(values))[:, None]
    good = values >= level if rises else values <= level
    first: Floats = np.where(good.any(axis=1), rounds[good.argmax(axis=1)], rounds[-1] + 1).astype(np.float64)
    return first


def clients(loaded: Loaded, arm: str) -> Floats:
    """Return the accuracy of every client on its own hold-out after the last round, as (seeds, clients)."""
    frame = loaded.client_accuracy
    mine = frame[frame["arm"] == arm]
    last = mine[mine["round"] == mine["round"].max()]
    table: Floats = last.pivot(index="seed", columns="client", values="accuracy").to_numpy()
    return table


def loss_gap(loaded: Loaded, arm: str, other: str) -> Floats:
    """Return the largest difference in loss of each seed over the rounds that both arms were measured in."""
    (rounds, losses), (others, other_losses) = curve(loaded, arm, "loss"), curve(loaded, other, "loss")
    mine, theirs = np.isin(rounds, others), np.isin(others, rounds)
    return np.asarray(np.abs(losses[:, mine] - other_losses[:, theirs]).max(axis=1))
