"""Journals for the tests of the report, written by hand: no training. And what a written page holds."""

import base64
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from turnout.costs import Costs
from turnout.journal import ClientFacts, Journal, RunInfo
from turnout.report.participation_encoding import NUMBER_TYPES
from turnout.requests import Record

FACTS = {"engine": "vectorised", "versions": {"python": "3.11"}, "machine": {"cores": 2}}
CONFIG: dict[str, Any] = {"rounds": 4, "seeds": 1, "target": None, "data": {"use": "elsewhere"}}


def record(round: int, rng: np.random.Generator, num_clients: int, cohort: int, **changes: Any) -> Record:
    """Return a round in which most of the cohort answers, some in part and some not at all."""
    up = np.flatnonzero(rng.random(num_clients) < 0.5) if round else np.zeros(0, dtype=np.int64)
    asked = np.sort(rng.choice(up, min(cohort, len(up)), replace=False)) if len(up) else up
    asked_steps = np.full(len(asked), 6)
    steps = rng.choice([0, 3, 6], len(asked), p=[0.2, 0.3, 0.5])
    came = steps > 0
    coefficients = np.where(came, rng.random(len(asked)), 0.0)
    facts: dict[str, Any] = {
        "up": up,
        "asked": asked,
        "multiplicity": np.ones_like(asked),
        "answered": asked[came],
        "asked_steps": asked_steps,
        "local_steps": steps,
        "coefficients": coefficients,
        "losses": np.where(came, 1.0, np.nan),
        "metrics": {
            "loss": 2.0 / (1 + round) + 0.1 * rng.random(),
            "accuracy": min(1.0, 0.1 * round + 0.05 * rng.random()),
        },
        "costs": Costs(
            bytes_down=400 * len(asked), bytes_up=300 * int(came.sum()), gradient_evaluations=int(steps.sum())
        )
        if round
        else Costs(),
    }
    return Record(round=round, num_clients=num_clients, **{**facts, **changes})


def held(num_clients: int = 12, classes: int = 3) -> Callable[[int], ClientFacts]:
    """Return what clients hold and how fast they are, by seed."""

    def of(seed: int) -> ClientFacts:
        rng = np.random.default_rng([7, seed])
        labels = rng.integers(0, 20, (num_clients, classes)) + 1
        return ClientFacts(
            sizes=labels.sum(axis=1), label_counts=labels, seconds_per_step=rng.random(num_clients) + 0.1
        )

    return of


def write(
    folder: Path,
    *,
    arms: Sequence[str] = ("FedAvg", "FedNova"),
    seeds: int = 3,
    rounds: int = 4,
    num_clients: int = 12,
    cohort: int = 4,
    study: str = "phones",
    config: Mapping[str, Any] | None = None,
    finished: bool = True,
    holdings: Callable[[int], ClientFacts | None] = lambda seed: None,
    **changes: Any,
) -> Path:
    """Write a study's journal and return its folder; `changes` replace facts of every round after the first."""
    settings = {**CONFIG, **(config or {})}
    with Journal.create(folder, study=study, config=settings, facts=FACTS) as journal:
        for place, arm in enumerate(arms):
            for seed in range(seeds):
                rng = np.random.default_rng([seed, place])
                info = RunInfo(arm=arm, seed=seed, rounds=rounds, config=settings, holdings=holdings(seed))
                run = journal.begin(info)
                for round in range(rounds + 1):
                    journal.write([(run, record(round, rng, num_clients, cohort, **(changes if round else {})))])
                if finished:
                    journal.finish(run)
    return folder


def data_of(page: str) -> dict[str, Any]:
    """Return the numbers that a page carries."""
    (text,) = re.findall(r"<script type=application/json id=data>(.*?)</script>", page, flags=re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def unpacked(entry: dict[str, str]) -> NDArray[Any]:
    """Return the numbers that `participation_encoding.packed` wrote."""
    return np.frombuffer(base64.b64decode(entry["d"]), dtype=NUMBER_TYPES[entry["t"]])


def ask(folder: Path, query: str) -> pd.DataFrame:
    """Return what the journal's database says, past turnout's own reading."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database:
        return pd.read_sql(query, database)


def change(folder: Path, statement: str, *values: Any) -> None:
    """Change the journal's database behind turnout's back."""
    with closing(sqlite3.connect(folder / "journal.sqlite")) as database, database:
        database.execute(statement, values)
