"""A study, run: every arm with every seed, in groups that advance in step, each round written to the journal."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from turnout.catalogue import did_you_mean
from turnout.engine import Engine, Sequential, Vectorised, drive
from turnout.errors import ConfigError
from turnout.journal import Journal, Loaded, frames, load
from turnout.requests import Record
from turnout.study.compare import Comparison, compare
from turnout.study.resolve import resolved
from turnout.study.study import OnProgress, Study
from turnout.study.workshop import Place, Workshop

ENGINES: dict[str, type[Vectorised] | type[Sequential]] = {"vectorised": Vectorised, "sequential": Sequential}
Models = dict[tuple[str, int], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a study found."""

    study: Study
    loaded: Loaded  # everything, as pandas frames
    models: Models  # the last model of each (arm, seed) that was run now, as a flat vector
    folder: Path | None

    @property
    def was_finished(self) -> bool:
        """Whether the folder already held all of it."""
        return not self.models

    def comparison(self) -> Comparison:
        """Return the arms side by side."""
        return compare(self.loaded, target=self.study.target)

    def table(self) -> str:
        """Return the comparison as a text table."""
        return self.comparison().text()

    def verdict(self) -> str:
        """Return what the comparison says, in words."""
        return self.comparison().verdict()


def engine_named(engine: str | Engine) -> Engine:
    """Return the engine of this name."""
    if not isinstance(engine, str):
        return engine
    if engine not in ENGINES:
        near = did_you_mean(engine, list(ENGINES))
        raise ConfigError(f"There is no engine {engine!r}.{near} There are {' and '.join(ENGINES)}.")
    return ENGINES[engine]()


def run_study(
    study: Study,
    *,
    out: str | Path | None = None,
    engine: str | Engine = "vectorised",
    on_progress: OnProgress | None = None,
    together: int | None = None,
) -> Result:
    """Run what the folder does not hold yet; data, plans and models are checked before anything is written."""
    worker = engine_named(engine)
    workshop = Workshop(study, getattr(worker, "device", torch.device("cpu")))
    places = [Place(arm, seed) for seed in study.all_seeds for arm in workshop.versions]
    first = places[: len(workshop.versions)]
    for place in first:
        workshop.run(0, place)
    size = workshop.group_size(first) if together is None else max(1, together)
    folder = None if out is None else Path(out)
    journal = Journal.create(folder, study=study.name, config=resolved(study), facts=_facts(worker))
    models: Models = {}
    try:
        finished = journal.finished_runs()
        left = [place for place in places if place not in finished]
        for at in range(0, len(left), size):
            models |= _run_group(workshop, left[at : at + size], journal, worker, on_progress)
    except BaseException:
        journal.close()
        raise
    if folder is None:
        return Result(study=study, loaded=frames(journal), models=models, folder=None)
    journal.close()
    return Result(study=study, loaded=load(folder), models=models, folder=folder)


def _run_group(
    workshop: Workshop, group: Sequence[Place], journal: Journal, engine: Engine, on_progress: OnProgress | None
) -> Models:
    """Run some places together and return their last models."""
    workshop.keep_only(group)
    runs = [workshop.run(at, place) for at, place in enumerate(group)]
    ids = [journal.begin(workshop.info(place)) for place in group]
    unfinished = set(range(len(group)))

    def on_records(records: list[tuple[int, Record]]) -> None:
        journal.write([(ids[at], record) for at, record in records])
        for at, record in records:
            if record.finished:
                journal.finish(ids[at])
                unfinished.discard(at)
            if on_progress is not None:
                on_progress(*group[at], record)

    try:
        states = drive(runs, engine, on_records)
    except BaseException as error:
        for at in sorted(unfinished):
            journal.finish(ids[at], "interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        raise
    return {(place.arm, place.seed): state.model for place, state in zip(group, states, strict=True)}


def _facts(engine: Engine) -> dict[str, Any]:
    """Return how and on what the study is run."""
    versions = {name: version(name) for name in ("turnout", "torch", "numpy")}
    return {
        "engine": engine.name,
        "device": str(getattr(engine, "device", "cpu")),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
    }
