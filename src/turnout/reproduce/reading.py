"""The curves of a study as arrays, one row per seed, to compute claims from."""

from typing import NamedTuple

import numpy as np

from turnout.array_types import Bools, Floats, Ids
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


class Rounds(NamedTuple):
    """The rounds that each seed took to a target; those that never reached it are censored at one past the last."""

    rounds: Floats
    never: Bools

    def ratio(self, other: "Rounds") -> tuple[Floats, Bools]:
        """Return these rounds ÷ those of another arm, and in which seeds one of the two is only a bound.

        A target that is met before the first round counts as one round.
        """
        return np.maximum(self.rounds, 1) / np.maximum(other.rounds, 1), self.never | other.never


def rounds_to(
    loaded: Loaded, arm: str, target: float | Floats, metric: str = "accuracy", *, rises: bool = True
) -> Rounds:
    """Return the first round in which each seed reaches the target."""
    rounds, values = curve(loaded, arm, metric)
    level = np.broadcast_to(np.asarray(target, dtype=float), len(values))[:, None]
    good = values >= level if rises else values <= level
    there = good.any(axis=1)
    return Rounds(np.where(there, rounds[good.argmax(axis=1)], rounds[-1] + 1).astype(np.float64), np.asarray(~there))


def clients(loaded: Loaded, arm: str) -> Floats:
    """Return the accuracy of every client on its own hold-out after the last round, as (seeds, clients)."""
    frame = loaded.client_accuracy
    mine = frame[frame["arm"] == arm]
    last = mine[mine["round"] == mine["round"].max()]
    table: Floats = last.pivot(index="seed", columns="client", values="accuracy").to_numpy()
    return table


def personal(loaded: Loaded, arm: str, measure: str) -> Floats:
    """Return a measure of each client's own model after the last round, as (seeds, clients)."""
    frame = loaded.personal
    mine = frame[(frame["arm"] == arm) & (frame["measure"] == measure)]
    last = mine[mine["round"] == mine["round"].max()]
    table: Floats = last.pivot(index="seed", columns="client", values="value").to_numpy()
    return table


def loss_gap(loaded: Loaded, arm: str, other: str) -> Floats:
    """Return the largest difference in loss of each seed over the rounds that both arms were measured in."""
    (rounds, losses), (others, other_losses) = curve(loaded, arm, "loss"), curve(loaded, other, "loss")
    mine, theirs = np.isin(rounds, others), np.isin(others, rounds)
    return np.asarray(np.abs(losses[:, mine] - other_losses[:, theirs]).max(axis=1))
