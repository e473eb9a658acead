"""A study, run: every arm with every seed, in groups that advance in step, each round written to the journal."""

import os
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from turnout.catalogue import did_you_mean
from turnout.engine import Engine, Sequential, Vectorised, drive
from turnout.engine.tuning import way_of
from turnout.errors import ConfigError, JournalError
from turnout.journal import Journal, Loaded, frames, load
from turnout.requests import Record
from turnout.strangers import UNLIKELY, as_written, count_of, in_brief
from turnout.study.compare import Comparison, compare
from turnout.study.party import Party
from turnout.study.resolve import resolved
from turnout.study.stopping import Stopped, asked_to_stop
from turnout.study.study import OnProgress, Study
from turnout.study.tracking import check_tracking, tracked
from turnout.study.workshop import Place, Workshop

ENGINES: dict[str, type[Vectorised] | type[Sequential]] = {"vectorised": Vectorised, "sequential": Sequential}
Models = Mapping[tuple[str, int], Tensor]  # by arm and seed, as flat vectors


@dataclass(frozen=True, slots=True)
class LastModels(Models):
    """The last models of a folder's finished runs, each read when it is asked for."""

    loaded: Loaded

    def __getitem__(self, place: tuple[str, int]) -> Tensor:
        if place not in list(self):
            raise KeyError(place)
        return self.loaded.model(*place)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        runs = self.loaded.runs[self.loaded.runs["status"] == "finished"]
        return iter([(str(arm), int(seed)) for arm, seed in zip(runs["arm"], runs["seed"], strict=True)])

    def __len__(self) -> int:
        return int((self.loaded.runs["status"] == "finished").sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a study found."""

    study: Study
    loaded: Loaded  # everything, as pandas frames
    models: Models  # the last model of each (arm, seed)
    folder: Path | None
    was_finished: bool = False  # whether the folder already held all of it

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
    folder = None if out is None else Path(out)
    check_tracking(study, folder)
    worker = engine_named(engine)
    workshop = Workshop(study, getattr(worker, "device", torch.device("cpu")))
    places = [Place(arm, seed) for seed in study.all_seeds for arm in workshop.versions]
    first = places[: len(workshop.versions)]
    for place in first:
        workshop.run(0, place)
    journal = Journal.create(folder, study=study.name, config=resolved(study), facts=_facts(worker))
    models: dict[tuple[str, int], Tensor] = {}
    try:
        if "together" not in journal.facts:
            journal.set_fact("together", workshop.group_size(first) if together is None else max(1, together))
        with as_written(f"The journal in {folder}"):
            size = count_of(journal.facts["together"], "how many runs advance together", least=1)
        finished = journal.finished_runs()
        parties = [places[at : at + size] for at in range(0, len(places), size)]
        left = [[place for place in party if place not in finished] for party in parties]
        if any(left):
            _note_changes(journal, worker)
            with tracked(study, folder, workshop.configs, on_progress) as tell:
                models = _run_parties(workshop, left, journal, worker, tell)
    except BaseException:
        journal.close()
        raise
    if folder is None:
        return Result(study=study, loaded=frames(journal), models=models, folder=None)
    journal.close()
    loaded = load(folder)
    return Result(study=study, loaded=loaded, models=LastModels(loaded), folder=folder, was_finished=not any(left))


def _run_parties(
    workshop: Workshop,
    parties: Sequence[Sequence[Place]],
    journal: Journal,
    engine: Engine,
    on_progress: OnProgress | None,
) -> dict[tuple[str, int], Tensor]:
    """Run what is left of each party; return the last models of a study that is kept in memory."""
    models: dict[tuple[str, int], Tensor] = {}
    with asked_to_stop(journal.folder is not None) as is_asked:
        for number, places in enumerate(parties):
            if not places:
                continue
            if is_asked():
                raise Stopped
            party = Party.of(workshop, number, places, journal)
            tell = None if on_progress is None else _by_place(on_progress, places)
            try:
                _run_party(party, engine, tell, is_asked)
            except BaseException as error:
                party.give_up("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
                if party.is_taken_up and isinstance(error, UNLIKELY):
                    raise JournalError(
                        f"{journal.folder} does not go on from its checkpoint ({in_brief(error)}): it was changed, "
                        "this machine cannot do it, or a rule of your own cannot go on from what it remembers. "
                        "Bring back a good copy, or run the study again in another folder with --out."
                    ) from error
                raise
            if journal.folder is None:
                models |= {place: run.state.model for place, run in zip(places, party.runs, strict=True)}
    return models


def _by_place(on_progress: OnProgress, places: Sequence[Place]) -> Callable[[int, Record], None]:
    return lambda at, record: on_progress(*places[at], record)


def _run_party(
    party: Party, engine: Engine, tell: Callable[[int, Record], None] | None, is_asked: Callable[[], bool]
) -> None:
    """Run a party to its end, or until it is asked to stop."""

    def on_records(records: list[tuple[int, Record]]) -> None:
        _keep_ways(party.journal, engine)
        stop = is_asked()
        party.write(records, save_now=stop)
        if tell is not None:
            for at, record in records:
                tell(at, record)
        if stop and party.unfinished:
            raise Stopped

    drive(party.runs, engine, on_records)


def _keep_ways(journal: Journal, engine: Engine) -> None:
    """Keep how the engine chose to run: another choice would add the same numbers in another order."""
    if isinstance(engine, Vectorised) and len(engine.ways) > len(journal.facts.get("ways", ())):
        journal.set_fact("ways", {key: asdict(way) for key, way in sorted(engine.ways.items())})


def _note_changes(journal: Journal, engine: Engine) -> None:
    """Let the engine run as it did before, and say what else is not as it was."""
    if isinstance(engine, Vectorised):
        with as_written(f"The journal in {journal.folder}"):
            engine.ways |= {key: way_of(way) for key, way in journal.facts.get("ways", {}).items()}
    before, now = journal.earlier, _facts(engine)
    changed = [name for name in now if before is not None and before.get(name) != now[name]]
    if before is not None and changed:
        told = "; ".join(f"{name} was {before.get(name)} and is {now[name]}" for name in changed)
        warnings.warn(
            f"{journal.folder} goes on in other circumstances ({told}): the last digits may differ from those of a "
            "run that was never stopped.",
            stacklevel=2,
        )


def _facts(engine: Engine) -> dict[str, Any]:
    """Return how and on what the study is run."""
    versions = {name: version(name) for name in ("turnout", "torch", "numpy")}
    return {
        "engine": engine.name,
        "device": str(getattr(engine, "device", "cpu")),
        "versions": {"python": platform.python_version(), **versions},
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
    }
