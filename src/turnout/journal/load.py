"""Read a study's journal as pandas frames; a study that is still running gives the rounds written so far."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from turnout.array_types import Floats, Ids
from turnout.checkpoint import LastModel, Stored, read_model, verify
from turnout.errors import ConfigError, JournalError
from turnout.journal.client_facts import CLIENT_ARRAYS, ClientFacts
from turnout.journal.client_frames import client_frame, rejections
from turnout.journal.codec import FLOATS as CLIENT_FLOATS
from turnout.journal.codec import (
    INTEGERS,
    MOST_CLIENTS,
    OUTCOMES,
    decode_clients,
    decode_floats,
    decode_ids,
    decode_measures,
)
from turnout.journal.journal import MEASURED, UNKNOWN, Journal
from turnout.journal.read_rounds import ByClient, RoundClients, read_by_client, read_clients
from turnout.journal.rebuild_model import finished_runs_text, rebuild_module
from turnout.journal.schema import VERSION
from turnout.journal.size_limits import FRAME_BYTES, check_expansion, check_num_clients
from turnout.metrics import can_be_metric
from turnout.untrusted_input import as_written, name_of

COSTS = ("bytes_down", "bytes_up", "gradient_evaluations", "probe_evaluations", "sim_seconds", "wall_seconds")
FLOATS = ("loss", "accuracy", "sim_seconds", "wall_seconds")
TEXTS = ("events", "rejected", "metrics")
COUNTS = {"up_count": "up", "asked_count": "asked", "answered_count": "answered"}
KEYS = ("arm", "seed", "round")  # of a row of `rounds`
RUN_COLUMNS = ("id", "arm", "seed", "rounds", "status", "started", "ended", "config", "facts")
ROUND_COLUMNS = ("evaluated", *MEASURED, "num_clients", *COUNTS, *COSTS)
CLIENT_COLUMNS = (*INTEGERS, "outcome", "answered", *CLIENT_FLOATS)
YEARS = (1970, 9998)  # in which a run may start or end; pandas cannot write other years that it reads
MOST_METRICS = 1000
MOST_NOTES, MOST_NOTE_LETTERS = 100, 10_000
MOST_COST = 1e15  # bytes, steps or seconds of one round: the sum of a thousand such costs still fits
IN_ORDER = "FROM run JOIN arm ON run.arm = arm.name"


@dataclass(frozen=True, eq=False, kw_only=True)
class Loaded:
    """Everything a journal holds; the large frames are read at the first access.

       `rounds` has one row per run and round: the metrics, the number of clients that were up, asked and answered, the
       costs of the round, and the costs so far as `cumulative_…`. `evaluated` says whether the model was evaluated; NaN
       in such a row means that the model diverged.
    `bytes` is the sum of both byte counts. `rejected` holds a
       {"client", "reason"} for each rejected update.
    """

    study: dict[str, Any]  # name, config, facts, version
    runs: pd.DataFrame  # one row per arm and seed, in the order of the arms
    rounds: pd.DataFrame
    metrics: tuple[str, ...]  # the columns of `rounds` that were measured
    source: Path | Journal

    def __repr__(self) -> str:
        name, where = self.study["name"], "in memory" if isinstance(self.source, Journal) else self.source
        runs = f"{len(self.arms)} arms, {len(self.finished)} of {len(self.runs)} runs finished"
        return f"Loaded({name!r}: {runs}, {len(self.rounds)} rounds, {where})"

    @property
    def arms(self) -> tuple[str, ...]:
        """The arms, in the study's order."""
        return tuple(dict.fromkeys(self.runs["arm"]))

    @property
    def failures(self) -> dict[tuple[str, int], str]:
        """Why runs failed, by arm and seed."""
        failed = self.runs[self.runs["status"] == "failed"]
        rows = zip(failed["arm"], failed["seed"], failed["facts"], strict=True)
        return {(arm, int(seed)): str(facts.get("failure", UNKNOWN)) for arm, seed, facts in rows}

    @cached_property
    def clients(self) -> pd.DataFrame:
        """One row per round and client asked: its steps, the outcome of its job, its loss and its coefficient.

        `progress` is how far it got and `seconds` how long that took, also where the server did not use it; `cut_off`
        says that the server's deadline stopped it.

        If the data names or groups its clients, the columns `name` and `group` hold them.
        """
        keys, facts = [], []
        for arm, seed, round, num_clients, asked, blob in self._blobs("clients"):
            keys.append((arm, seed, round))
            facts.append(decode_clients(blob, num_clients, asked))
        columns: dict[str, Any] = {
            name: np.concatenate([fact[name] for fact in facts]) if facts else [] for name in CLIENT_COLUMNS
        }
        columns["outcome"] = pd.Categorical(
            np.array(OUTCOMES)[np.asarray(columns["outcome"], dtype=np.int64)], list(OUTCOMES)
        )
        return self._with_names(client_frame(keys, [len(fact["client"]) for fact in facts], columns))

    @cached_property
    def client_accuracy(self) -> pd.DataFrame:
        """One row per client and evaluated round: the accuracy on the client's own hold-out, NaN if it has none.

        If the data names or groups its clients, the columns `name` and `group` hold them.
        """
        keys, values = [], []
        for arm, seed, round, num_clients, _, blob in self._blobs("client_accuracy"):
            keys.append((arm, seed, round))
            check_expansion(self.source, len(keys) * num_clients * FRAME_BYTES)
            values.append(decode_floats(blob, num_clients))
        lengths = [len(each) for each in values]
        columns: dict[str, Any] = {
            "client": np.concatenate([np.arange(length) for length in lengths]) if values else [],
            "accuracy": np.concatenate(values) if values else [],
        }
        return self._with_names(client_frame(keys, lengths, columns))

    @cached_property
    def personal(self) -> pd.DataFrame:
        """One row per client, evaluated round and measure of the client's own model on its hold-out (or NaN)."""
        frames = [client_frame([], [], {"client": [], "measure": [], "value": []})]
        for arm, seed, round, num_clients, _, blob in self._blobs("personal"):
            check_expansion(self.source, (len(frames) + 1) * num_clients * FRAME_BYTES)
            for name, values in decode_measures(blob, num_clients).items():
                columns = {"client": np.arange(num_clients), "measure": np.full(num_clients, name), "value": values}
                frames.append(client_frame([(arm, seed, round)], [num_clients], columns))
        return self._with_names(pd.concat(frames[1:], ignore_index=True) if frames[1:] else frames[0])

    def _with_names(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a frame of clients with their names and groups, in runs whose data has them."""
        texts = {key: self._names_and_groups(*key) for key in zip(self.runs["arm"], self.runs["seed"], strict=True)}
        rows: dict[Any, Any] = dict(frame.groupby(["arm", "seed"], sort=False).indices) if len(frame) else {}
        for place, column in enumerate(("name", "group")):
            if any(of_run[place] is not None for of_run in texts.values()):
                values = np.full(len(frame), None, dtype=object)
                for key, run_rows in rows.items():
                    if (by_client := texts[key][place]) is not None:
                        values[run_rows] = np.array(by_client, dtype=object)[frame["client"].to_numpy()[run_rows]]
                frame[column] = values
        return frame

    def _names_and_groups(self, arm: str, seed: int) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
        facts = self.holdings(arm, seed)
        return (None, None) if facts is None else (facts.client_names, facts.client_groups)

    def round_clients(self, arm: str, seed: int) -> Iterator[RoundClients]:
        """Yield the clients of each round of a run, in order, as far as this was loaded; they are still encoded."""
        with _reading(self.source) as journal:
            yield from read_clients(journal, arm, seed, self._last_round(arm, seed))

    def round_by_client(self, column: ByClient, arm: str, seed: int) -> Iterator[tuple[int, Floats]]:
        """Yield (round, a number by client) of each round of a run that has this column, in order."""
        with _reading(self.source) as journal:
            yield from read_by_client(journal, column, arm, seed, self._last_round(arm, seed))

    def _last_round(self, arm: str, seed: int) -> int:
        """Return the last round of a run that this was loaded with; −1 if there is none."""
        rounds = self.rounds[(self.rounds["arm"] == arm) & (self.rounds["seed"] == seed)]["round"]
        return -1 if rounds.empty else int(rounds.max())

    def up(self, arm: str, seed: int, round: int) -> Ids:
        """Return the clients that were up, ascending."""
        with _reading(self.source) as journal:
            rows = journal.read(
                "SELECT up, num_clients FROM round JOIN run ON run.id = round.run WHERE arm = ? AND seed = ? "
                "AND round = ?",
                (arm, _whole_seed(seed), int(round)),
            )
        if not rows:
            raise JournalError(
                f"The journal holds no round {round} of arm {arm!r} with seed {seed}. "
                f"It has the arms {', '.join(self.arms)}; see .runs for their seeds and .rounds for their rounds."
            )
        return decode_ids(*rows[0])

    def holdings(self, arm: str, seed: int) -> ClientFacts | None:
        """Return the facts of a run's clients (data sizes, label counts, speed, names); None if none are stored."""
        columns = ", ".join(f"(SELECT body FROM array WHERE array.id = run.{name})" for name in CLIENT_ARRAYS)
        with _reading(self.source) as journal:
            rows = journal.read(f"SELECT {columns} FROM run WHERE arm = ? AND seed = ?", (arm, _whole_seed(seed)))
        if not rows:
            raise JournalError(
                f"The journal holds no run of arm {arm!r} with seed {seed}. "
                f"It has the arms {', '.join(self.arms)}; see .runs for their seeds."
            )
        if rows[0][0] is None:
            return None
        with as_written(f"The journal in {self.source}"):
            return ClientFacts.decoded(*rows[0])

    def state_dict(
        self, arm: str, seed: int, model: int = 0, client: int | None = None, which: str | None = None
    ) -> dict[str, Tensor]:
        """Return the last model of a finished run as PyTorch has it; of several models, the one with this number.

        With a client, it is the model that this client uses, of the kind `which` where it has several.

        It is the model whose final loss and accuracy are on record: with FedExP the mean of the last two iterates.
        Running statistics are the trained ones; integer buffers and frozen parameters are as the module had them.
        """
        return self.last_model(arm, seed).chosen(model, client, which).state_dict()

    def module(
        self, arm: str, seed: int, model: int = 0, client: int | None = None, which: str | None = None
    ) -> nn.Module:
        """Return the same as a module in evaluation mode; for models that turnout ships."""
        last = self.last_model(arm, seed).chosen(model, client, which)
        (config,) = self.runs.query("arm == @arm and seed == @seed")["config"]
        return rebuild_module(config, last, self._where)

    @property
    def finished(self) -> tuple[tuple[str, int], ...]:
        """The (arm, seed) of every finished run."""
        runs = self.runs[self.runs["status"] == "finished"]
        return tuple((str(arm), int(seed)) for arm, seed in zip(runs["arm"], runs["seed"], strict=True))

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the study's set-up, such as that every seed starts from the same weights."""
        return tuple(self.study["facts"].get("notes", ()))

    @property
    def _where(self) -> str:
        return "This study, which is in memory," if isinstance(self.source, Journal) else str(self.source)

    def last_model(self, arm: str, seed: int) -> LastModel:
        """Return the last model of a finished run, and what its module was built for."""
        query = (
            "SELECT run.id, file.name, sha256, bytes FROM run LEFT JOIN file ON file.name = run.model "
            "WHERE arm = ? AND seed = ? AND status = 'finished'"
        )
        with _reading(self.source) as journal:
            rows = journal.read(query, (arm, _whole_seed(seed)))
        if not rows:
            known = finished_runs_text(self.finished)
            raise JournalError(f"{self._where} holds no finished run of arm {arm!r} with seed {seed}. {known}")
        ((run, *stored),) = rows
        if isinstance(self.source, Journal):
            return self.source.last_models[run]
        if stored[0] is None:
            raise JournalError(f"{self.source} holds no model of arm {arm!r} with seed {seed}. Bring back a good copy.")
        verify(self.source, Stored(*stored))
        return read_model(self.source, stored[0], run)

    def _blobs(self, column: str) -> Iterator[tuple[str, int, int, int, int, bytes]]:
        """Yield (arm, seed, round, number of clients, number asked, blob) of each round that has the column.

        Rounds that were written after this was loaded are left out.
        """
        last = self.rounds.groupby(["arm", "seed"], sort=False)["round"].max()
        with _reading(self.source) as journal:
            for run, arm, seed in zip(self.runs["id"], self.runs["arm"], self.runs["seed"], strict=True):
                if (arm, seed) in last.index:
                    query = (
                        f"SELECT round, num_clients, asked_count, {column} FROM round WHERE run = ? AND round <= ? "
                        f"AND {column} IS NOT NULL ORDER BY round"
                    )
                    for row in journal.read(query, (int(run), int(last[arm, seed]))):
                        yield (arm, seed, *row)


def _whole_seed(seed: Any) -> int:
    """Return a seed as a whole number; raise if it is not one."""
    if not isinstance(seed, int | float | np.integer | np.floating) or seed % 1 != 0:
        raise ConfigError(f"A seed must be a whole number; got {seed!r:.40}. See .runs for the seeds of each arm.")
    return int(seed)


def load(folder: str | Path) -> Loaded:
    """Read the journal in a folder, finished or still being written."""
    with Journal.open(Path(folder)) as journal:
        return _loaded(journal, Path(folder))


def frames(journal: Journal) -> Loaded:
    """Read an open journal; a journal in memory must stay open, because large frames are read later."""
    return _loaded(journal, journal)


def _loaded(journal: Journal, source: Path | Journal) -> Loaded:
    with journal.snapshot():
        ((name, config, facts),) = journal.read("SELECT name, config, facts FROM study")
        runs = journal.read(f"SELECT {', '.join(RUN_COLUMNS)} {IN_ORDER} ORDER BY position, seed")
        rounds = journal.read(
            f"SELECT {', '.join((*KEYS, *ROUND_COLUMNS, *TEXTS))} {IN_ORDER} JOIN round ON round.run = run.id "
            "ORDER BY position, seed, round"
        )
        sizes_and_counts = journal.read(
            "SELECT DISTINCT body, num_clients FROM round JOIN run ON run.id = round.run JOIN array ON array.id = sizes"
        )
    with as_written(f"The journal in {source.folder if isinstance(source, Journal) else source}"):
        frame, metrics = _rounds_frame(rounds)
        check_expansion(source, FRAME_BYTES * int(frame["asked"].sum()))
        check_num_clients(sizes_and_counts)
        return Loaded(
            study={
                "name": name_of(name),
                "config": _json(config, dict),
                "facts": _with_notes(_json(facts, dict)),
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


def _with_notes(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts; raise if a note is one that turnout would not write, because notes are printed."""
    notes = facts.get("notes", [])
    if not isinstance(notes, list) or len(notes) > MOST_NOTES:
        raise ValueError("notes that are no list, or too many")
    if not all(isinstance(note, str) and note.isprintable() and len(note) <= MOST_NOTE_LETTERS for note in notes):
        raise ValueError("a note that no study has")
    return facts


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
    """Raise if a column of whole numbers holds other values: SQLite lets a column hold values of any type."""
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
    if not frame[list(COSTS)].apply(lambda cost: cost.between(0, MOST_COST)).all(axis=None):
        raise ValueError(f"a cost below 0 or above {MOST_COST:g}")
    events, rejected, others = (
        [_json(row[place], kind) if row[place] else kind() for row in rows]
        for place, kind in ((-3, list), (-2, dict), (-1, dict))
    )
    frame["events"] = pd.Series([tuple(map(str, each)) for each in events], dtype="object")
    frame["rejected"] = pd.Series([rejections(each) for each in rejected], dtype="object")
    names = tuple(dict.fromkeys(name_of(name) for each in others for name in each))
    if len(names) > MOST_METRICS or not all(map(can_be_metric, names)) or {*names} & {*MEASURED}:
        raise ValueError("measures of names that are taken, or too many of them")
    for name in names:
        frame[name] = [float(each.get(name, "nan")) for each in others]
    frame["bytes"] = frame["bytes_down"] + frame["bytes_up"]
    runs = frame.groupby(["arm", "seed"], sort=False)
    for name in (*COSTS, "bytes"):
        frame[f"cumulative_{name}"] = runs[name].cumsum()
    measured = tuple(name for name in MEASURED if frame[name].notna().any())
    return frame, (*measured, *names)


@contextmanager
def _reading(source: Path | Journal) -> Iterator[Journal]:
    if isinstance(source, Journal):
        yield source
        return
    with Journal.open(source) as journal:
        yield journal
