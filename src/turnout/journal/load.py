"""A study's journal as pandas frames; a study that is still running gives what it has written so far."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from turnout.checkpoint import Stored, tensors_of, verify
from turnout.errors import JournalError
from turnout.journal.codec import INTEGERS, MOST_CLIENTS, decode_clients, decode_floats, decode_ids
from turnout.journal.holdings import HELD, Holdings
from turnout.journal.journal import MEASURED, Journal
from turnout.journal.schema import VERSION
from turnout.strangers import as_written, name_of
from turnout.streams import Ids

COSTS = ("bytes_down", "bytes_up", "gradient_evaluations", "probe_evaluations", "sim_seconds", "wall_seconds")
FLOATS = ("loss", "accuracy", "sim_seconds", "wall_seconds")
TEXTS = ("events", "rejected", "metrics")
COUNTS = {"up_count": "up", "asked_count": "asked", "answered_count": "answered"}
KEYS = ("arm", "seed", "round")
RUN_COLUMNS = ("id", "arm", "seed", "rounds", "status", "started", "ended", "config", "facts")
ROUND_COLUMNS = ("evaluated", *MEASURED, "num_clients", *COUNTS, *COSTS)
CLIENT_COLUMNS = (*INTEGERS, "answered", "coefficient", "loss")
YEARS = (1970, 9998)  # of a run; pandas reads others that cannot be written as a date
MOST_METRICS = 1000
MOST_SPENT = 1e15  # bytes, steps or seconds of a round: sums of a thousand such still fit
IN_ORDER = "FROM run JOIN arm ON run.arm = arm.name"


@dataclass(frozen=True, eq=False, kw_only=True)
class Loaded:
    """Everything a journal holds; the large frames are read when they are first asked for.

    `rounds` has one row per run and round: what was measured (`evaluated` says whether it was: a NaN in such a row is
    a model that diverged), how many were up, asked and answered, what the round cost, and the cost so far as
    `cumulative_…`. Byte counts also come summed, as `bytes`.
    """

    study: dict[str, Any]  # name, config, facts, version
    runs: pd.DataFrame  # one row per arm and seed, in the order of the arms
    rounds: pd.DataFrame
    metrics: tuple[str, ...]  # the columns of `rounds` that were measured
    source: Path | Journal

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms, in the study's order."""
        return tuple(dict.fromkeys(self.runs["arm"]))

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per client asked in a round: what it was asked, did, lost and counted for."""
        keys, facts = [], []
        for arm, seed, round, blob in self._blobs("clients"):
            keys.append((arm, seed, round))
            facts.append(decode_clients(blob))
        columns: dict[str, Any] = {
            name: np.concatenate([fact[name] for fact in facts]) if facts else [] for name in CLIENT_COLUMNS
        }
        return _long(keys, [len(fact["client"]) for fact in facts], columns)

    @cached_property
    def client_accuracy(self) -> pd.DataFrame:
        """One row per client and measured round: its accuracy on its own hold-out, NaN where it has none."""
        keys, values = [], []
        for arm, seed, round, blob in self._blobs("client_accuracy"):
            keys.append((arm, seed, round))
            values.append(decode_floats(blob))
        lengths = [len(each) for each in values]
        columns: dict[str, Any] = {
            "client": np.concatenate([np.arange(length) for length in lengths]) if values else [],
            "accuracy": np.concatenate(values) if values else [],
        }
        return _long(keys, lengths, columns)

    def up(self, arm: str, seed: int, round: int) -> Ids:
        """Return the clients that were up, ascending."""
        with _reading(self.source) as journal:
            found = journal.read(
                "SELECT up, num_clients FROM round JOIN run ON run.id = round.run WHERE arm = ? AND seed = ? "
                "AND round = ?",
                (arm, int(seed), int(round)),
            )
        if not found:
            raise JournalError(
                f"The journal holds no round {round} of arm {arm!r} with seed {seed}. "
                f"It has the arms {', '.join(self.arms)}; see .runs for their seeds and .rounds for their rounds."
            )
        return decode_ids(*found[0])

    def holdings(self, arm: str, seed: int) -> Holdings | None:
        """Return what a run's clients hold and how fast they are; None where the journal was not told."""
        columns = ", ".join(f"(SELECT body FROM array WHERE array.id = run.{name})" for name in HELD)
        with _reading(self.source) as journal:
            found = journal.read(f"SELECT {columns} FROM run WHERE arm = ? AND seed = ?", (arm, int(seed)))
        if not found:
            raise JournalError(
                f"The journal holds no run of arm {arm!r} with seed {seed}. "
                f"It has the arms {', '.join(self.arms)}; see .runs for their seeds."
            )
        return None if found[0][0] is None else Holdings.decoded(*found[0])

    def model(self, arm: str, seed: int) -> Tensor:
        """Return the last model of a finished run, as a flat vector."""
        return self._last(arm, seed)["model"]

    def buffers(self, arm: str, seed: int) -> Tensor | None:
        """Return the buffers that belong to the last model of a finished run, as a flat vector; None if it has none."""
        return self._last(arm, seed).get("buffers")

    def _last(self, arm: str, seed: int) -> dict[str, Tensor]:
        if isinstance(self.source, Journal):
            raise JournalError("This study was kept in memory, and its models in the models of its result.")
        query = (
            "SELECT run.id, file.name, sha256, bytes FROM run LEFT JOIN file ON file.name = run.model "
            "WHERE arm = ? AND seed = ?"
        )
        with _reading(self.source) as journal:
            found = journal.read(query, (arm, int(seed)))
        if not found or found[0][1] is None:
            raise JournalError(
                f"{self.source} holds no finished run of arm {arm!r} with seed {seed}. "
                f"See .runs for what there is, or go on with turnout resume {self.source}."
            )
        run, stored = found[0][0], Stored(*found[0][1:])
        verify(self.source, stored)
        tensors = tensors_of(self.source, stored.name, f"{run}/")
        if "model" not in tensors:
            raise JournalError(f"{self.source / stored.name} holds no model of run {run}. Bring back a good copy.")
        return tensors

    def _blobs(self, column: str) -> Iterator[tuple[str, int, int, bytes]]:
        """Yield the blobs of the rounds this was loaded with, and of no later ones."""
        last = self.rounds.groupby(["arm", "seed"], sort=False)["round"].max()
        with _reading(self.source) as journal:
            for run, arm, seed in zip(self.runs["id"], self.runs["arm"], self.runs["seed"], strict=True):
                if (arm, seed) in last.index:
                    query = (
                        f"SELECT round, {column} FROM round WHERE run = ? AND round <= ? AND {column} IS NOT NULL "
                        "ORDER BY round"
                    )
                    for round, blob in journal.read(query, (int(run), int(last[arm, seed]))):
                        yield arm, seed, round, blob


def load(folder: str | Path) -> Loaded:
    """Read the journal in a folder, finished or still being written."""
    with Journal.open(Path(folder)) as journal:
        return _loaded(journal, Path(folder))


def frames(journal: Journal) -> Loaded:
    """Read an open journal; one in memory has to stay open for the frames that are read later."""
    return _loaded(journal, journal)


def _loaded(journal: Journal, source: Path | Journal) -> Loaded:
    with journal.snapshot():
        ((name, config, facts),) = journal.read("SELECT name, config, facts FROM study")
        runs = journal.read(f"SELECT {', '.join(RUN_COLUMNS)} {IN_ORDER} ORDER BY position, seed")
        rounds = journal.read(
            f"SELECT {', '.join((*KEYS, *ROUND_COLUMNS, *TEXTS))} {IN_ORDER} JOIN round ON round.run = run.id "
            "ORDER BY position, seed, round"
        )
    with as_written(f"The journal in {source.folder if isinstance(source, Journal) else source}"):
        frame, metrics = _rounds_frame(rounds)
        return Loaded(
            study={
                "name": name_of(name),
                "config": _json(config, dict),
                "facts": _json(facts, dict),
                "version": VERSION,
            },
            runs=_runs_frame(runs),
            rounds=frame,
            metrics=metrics,
            source=source,
        )


def _json(text: Any, kind: type) -> Any:
    value = json.loads(text)
    if not isinstance(value, kind):
        raise TypeError(f"a {type(value).__name__} in place of a {kind.__name__}")
    return value


def _runs_frame(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=list(RUN_COLUMNS))
    for name in ("started", "ended"):
        frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
        if not frame[name].dropna().dt.year.between(*YEARS).all():
            raise ValueError("a time that no clock shows")
    for name in ("config", "facts"):
        frame[name] = pd.Series([_json(text, dict) for text in frame[name]], dtype="object")
    for name in ("arm", "status"):
        frame[name] = pd.Series([name_of(value) for value in frame[name]], dtype="object")
    _check_whole(frame, ["id", "seed", "rounds"])
    return frame.astype({"id": "int64", "seed": "int64", "rounds": "int64"})


def _check_whole(frame: pd.DataFrame, columns: list[str]) -> None:
    """Raise if a column of whole numbers holds anything else: SQLite lets a column hold any kind of value."""
    for name in columns:
        if len(frame) and frame[name].dtype.kind != "i":
            raise TypeError(f"{name} must be whole numbers")


def _rounds_frame(rows: list[tuple[Any, ...]]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    frame = pd.DataFrame([row[: -len(TEXTS)] for row in rows], columns=[*KEYS, *ROUND_COLUMNS])
    kinds = {name: "float64" if name in FLOATS else "int64" for name in frame.columns if name != "arm"}
    _check_whole(frame, [name for name, kind in kinds.items() if kind == "int64"])
    frame = frame.astype({**kinds, "evaluated": "bool"}).rename(columns=COUNTS)
    if not frame["num_clients"].between(0, MOST_CLIENTS).all():
        raise ValueError(f"more than {MOST_CLIENTS} clients")
    if not frame[list(COSTS)].apply(lambda cost: cost.between(0, MOST_SPENT)).all(axis=None):
        raise ValueError(f"a cost below 0 or above {MOST_SPENT:g}")
    events, rejected, others = (
        [_json(row[place], kind) if row[place] else kind() for row in rows]
        for place, kind in ((-3, list), (-2, dict), (-1, dict))
    )
    frame["events"] = pd.Series([tuple(map(str, each)) for each in events], dtype="object")
    frame["rejected"] = pd.Series([_by_client(each) for each in rejected], dtype="object")
    names = tuple(dict.fromkeys(name_of(name) for each in others for name in each))
    if len(names) > MOST_METRICS or {*names} & {*frame.columns}:
        raise ValueError("measures of names that are taken, or too many of them")
    for name in names:
        frame[name] = [float(each.get(name, "nan")) for each in others]
    frame["bytes"] = frame["bytes_down"] + frame["bytes_up"]
    runs = frame.groupby(["arm", "seed"], sort=False)
    for name in (*COSTS, "bytes"):
        frame[f"cumulative_{name}"] = runs[name].cumsum()
    measured = tuple(name for name in MEASURED if frame[name].notna().any())
    return frame, (*measured, *names)


def _by_client(rejected: dict[str, str]) -> dict[int, str]:
    return {int(client): str(reason) for client, reason in rejected.items()}  # JSON's keys are text


def _long(keys: list[tuple[str, int, int]], lengths: list[int], columns: dict[str, Any]) -> pd.DataFrame:
    """Return a frame in which each key is repeated for its clients."""
    arms, seeds, rounds = zip(*keys, strict=True) if keys else ((), (), ())
    repeated = {
        "arm": np.repeat(np.array(arms, dtype=object), lengths),
        "seed": np.repeat(np.array(seeds, dtype=np.int64), lengths),
        "round": np.repeat(np.array(rounds, dtype=np.int64), lengths),
    }
    return pd.DataFrame({**repeated, **columns})


@contextmanager
def _reading(source: Path | Journal) -> Iterator[Journal]:
    if isinstance(source, Journal):
        yield source
        return
    with Journal.open(source) as journal:
        yield journal
