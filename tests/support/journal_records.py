"""Small records and journals for tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from turnout.costs import Costs
from turnout.journal import Journal, RunInfo
from turnout.requests import Record


def record(round: int, *, asked: Sequence[int] = (1, 3), num_clients: int = 5, **changes: Any) -> Record:
    """Return a record in which every client is up and all but the last of those asked answer."""
    ids = np.array(asked, dtype=np.int64)
    answered = ids[:-1]
    came = np.isin(ids, answered)
    facts: dict[str, Any] = {
        "up": np.arange(num_clients),
        "multiplicity": np.arange(1, len(ids) + 1),
        "answered": answered,
        "asked_steps": np.full(len(ids), 7),
        "local_steps": np.where(came, 7, 0),
        "coefficients": np.where(came, 0.5, 0.0),
        "losses": np.where(came, 1.25, np.nan),
        "metrics": {"loss": 2.0 / (1 + round), "accuracy": 0.1 * round},
        "costs": Costs(bytes_down=100, bytes_up=50, gradient_evaluations=10, sim_seconds=1.5),
    }
    return Record(round=round, num_clients=num_clients, asked=ids, **{**facts, **changes})


def journal(folder: Path | None = None, *, study: str = "phones", **config: Any) -> Journal:
    """Return a journal of a study with these settings."""
    return Journal.create(folder, study=study, config={"rounds": 3, **config}, facts={"machine": "a"})


def info(arm: str = "FedAvg", seed: int = 0) -> RunInfo:
    """Return one run."""
    return RunInfo(arm=arm, seed=seed, rounds=3, config={"arm": arm})


def add_run(to: Journal, arm: str, seed: int, values: Sequence[float], *, metric: str = "accuracy") -> int:
    """Write a finished run that measures these values from round 0 on; each round costs 150 bytes, 10 gradients."""
    run = to.begin(info(arm, seed))
    free = Costs()
    for round, value in enumerate(values):
        changes: Mapping[str, Any] = {"metrics": {metric: value}, **({"costs": free} if round == 0 else {})}
        to.write([(run, record(round, **changes))])
    to.finish(run)
    return run
