"""A study, run: every arm with every seed, in groups that advance in step, each round written to the journal."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from turnout.analysis.compare import Comparison, compare
from turnout.analysis.target import target_of
from turnout.catalogue import did_you_mean
from turnout.engine import Engine, Interrupted, Sequential, Vectorised
from turnout.errors import ConfigError, RunsFailed, StudyNote
from turnout.journal import Data, Journal, Loaded, frames, load
from turnout.requests import Record
from turnout.streams import Streams
from turnout.study.driver import World, drive
from turnout.study.fleet_preview import notes_on
from turnout.study.interruption import StopRequest, listening
from turnout.study.notebook_view import as_html
from turnout.study.resolve import resolved
from turnout.study.run_display import watched
from turnout.study.run_factory import Place, RunFactory
from turnout.study.run_group import RunGroup
from turnout.study.study import OnProgress, Study
from turnout.study.tracking import check_tracking, tracked
from turnout.study.user_models import built, starts_note
from turnout.track.tracker import flat
from turnout.untrusted_input import UNLIKELY, as_written, count_of
from turnout.world.simulation import simulate

ENGINES: dict[str, type[Vectorised] | type[Sequential]] = {"vectorised": Vectorised, "sequential": Sequential}
READING = "reading data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a study found."""

    study: Study
    loaded: Loaded  # everything, as pandas frames
    folder: Path | None
    was_finished: bool = False  # whether the folder already held all of it

    def __repr__(self) -> str:
        return f"Result({self.study!r}, {'in memory' if self.folder is None else self.folder})"

    def _repr_html_(self) -> str:
        """Return the comparison as a notebook shows it."""
        return as_html(self.comparison, repr(self))

    def state_dict(self, arm: str, seed: int) -> dict[str, Tensor]:
        """Return the last model of a run as PyTorch has it, for `module.load_state_dict`.

        It is the model whose final loss and accuracy are on record: with FedExP the mean of the last two iterates.
        Running statistics are the trained ones; integer buffers and frozen parameters are as the module had them.
        """
        return self.loaded.state_dict(arm, seed)

    def module(self, arm: str, seed: int) -> nn.Module:
        """Return the last model of a run as a module of its own, on the CPU and in evaluation mode."""
        last = self.loaded.last_model(arm, seed)
        generator = Streams(seed).torch_generator("init")
        return last.put_into(built(self.study.versions()[arm].model, last.example_shape, last.num_outputs, generator))

    @property
    def failures(self) -> dict[tuple[str, int], str]:
        """Why runs failed, by arm and seed; none if all are finished."""
        return self.loaded.failures

    def comparison(self) -> Comparison:
        """Return the arms side by side."""
        return compare(self.loaded, target=target_of(self.study.target))

    def table(self) -> str:
        """Return the comparison as a text table."""
        return self.comparison().text()

    def verdict(self) -> str:
        """Return what the comparison says, in words."""
        return self.comparison().verdict()


def engine_named(engine: str | Engine, *, deterministic: bool = False) -> Engine:
    """Return the engine of this name."""
    if not isinstance(engine, str):
        if deterministic and isinstance(engine, Vectorised) and not engine.deterministic:
            raise ConfigError(
                "A deterministic run needs an engine that measures nothing; got a Vectorised that does. "
                "Pass Vectorised(deterministic=True), or its name."
            )
        return engine
    if engine not in ENGINES:
        near = did_you_mean(engine, list(ENGINES))
        raise ConfigError(f"There is no engine {engine!r}.{near} There are {' and '.join(ENGINES)}.")
    return Vectorised(deterministic=deterministic) if ENGINES[engine] is Vectorised else ENGINES[engine]()


def run_study(
    study: Study,
    *,
    out: str | Path | None = None,
    engine: str | Engine = "vectorised",
    on_progress: OnProgress | None = None,
    together: int | None = None,
    progress: bool = True,
    deterministic: bool = False,
    accept_changed_data: bool = False,
    world: World = simulate,
) -> Result:
    """Run what the folder does not hold yet; data, plans and models are checked before anything is written."""
    started = time.monotonic()
    folder = None if out is None else Path(out)
    check_tracking(study, folder)
    worker = engine_named(engine, deterministic=deterministic)
    run_factory = RunFactory(study, worker.device, world)
    places = [Place(arm, seed) for seed in study.all_seeds for arm in run_factory.versions]
    first = places[: len(run_factory.versions)]
    worker.watch.tell(READING)
    notes = notes_on([(place.arm, run_factory.run(0, place)) for place in first])
    data = Data({place: run_factory.digest(place) for place in first}, accept_changed_data, len(places))
    facts = _facts(worker, deterministic)
    told = facts | _notes(study, notes)
    journal = Journal.create(folder, study=study.name, config=resolved(study), facts=told, data=data)
    try:
        if "together" not in journal.facts:
            journal.set_fact("together", run_factory.group_size(first) if together is None else max(1, together))
        with as_written(f"The journal in {folder}"):
            size = count_of(journal.facts["together"], "how many runs advance together", least=1)
        finished, alone = journal.finished_runs(), -(-len(places) // size)
        left = _parties_left(journal, places, size, alone)
        if left:
            _note_changes(journal, worker, facts)
            for note in notes:
                warnings.warn(note, StudyNote, stacklevel=3)
            with ExitStack() as stack:
                if progress and sys.stderr is not None:
                    where = f"{worker.name}   {'in memory' if folder is None else folder}"
                    on_progress = stack.enter_context(
                        watched(study, worker.watch, where, finished, started, on_progress)
                    )
                tell = stack.enter_context(tracked(study, folder, run_factory.configs, on_progress))
                errors = _run_parties(run_factory, left, alone, journal, worker, tell)
            if errors and not journal.finished_runs():
                raise errors[0]
    except BaseException:
        journal.close()
        raise
    return _result(study, journal, was_finished=not left)


def _result(study: Study, journal: Journal, *, was_finished: bool) -> Result:
    """Return what a study found; warn of runs that failed."""
    if journal.folder is None:
        result = Result(study=study, loaded=frames(journal), folder=None)
    else:
        journal.close()
        result = Result(study=study, loaded=load(journal.folder), folder=journal.folder, was_finished=was_finished)
    if result.failures:
        warnings.warn(failure_text(result.failures, len(result.loaded.runs)), RunsFailed, stacklevel=4)
    return result


def _parties_left(journal: Journal, places: Sequence[Place], size: int, alone: int) -> list[tuple[int, list[Place]]]:
    """Return what is left to run: parties by number, then runs that failed while the others of their party went on."""
    finished, apart = journal.finished_runs(), journal.runs_alone(alone)
    parties: dict[int, list[Place]] = {}
    for at, place in enumerate(places):
        if place not in finished and place not in apart:
            parties.setdefault(at // size, []).append(place)
    parties |= {apart[place]: [place] for place in places if place in apart and place not in finished}
    for (arm, seed), why in journal.failures().items():
        warnings.warn(f"{arm}, seed {seed}, failed before and is tried again. It said: {why}", stacklevel=3)
    return list(parties.items())


def failure_text(failures: Mapping[tuple[str, int], str], runs: int) -> str:
    """Return which runs failed, and why."""
    each = "\n".join(f"  {arm}, seed {seed}: {why}" for (arm, seed), why in failures.items())
    return f"{len(failures)} of {runs} runs failed, and the others are finished:\n{each}"


def _run_parties(
    run_factory: RunFactory,
    parties: Sequence[tuple[int, Sequence[Place]]],
    alone: int,
    journal: Journal,
    engine: Engine,
    on_progress: OnProgress | None,
) -> list[Exception]:
    """Run what is left of each party; return the errors of runs that failed."""
    errors: list[Exception] = []
    with listening(journal.folder is not None) as stop, _watched(engine, stop):
        for number, places in parties:
            with stop.between_rounds():
                engine.watch.tell(READING)
                party = RunGroup.of(run_factory, number, places, journal, alone)
            tell = None if on_progress is None else _by_place(on_progress, places)
            try:
                errors += _run_party(party, engine, tell, stop)
            except BaseException as error:
                party.give_up("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
                if isinstance(error, Interrupted):
                    raise stop.within_round(party.saved_round) from error
                if party.is_taken_up and isinstance(error, UNLIKELY):
                    raise party.cannot_go_on(error) from error
                raise
    return errors


def _by_place(on_progress: OnProgress, places: Sequence[Place]) -> Callable[[int, Record], None]:
    return lambda at, record: on_progress(*places[at], record)


@contextmanager
def _watched(engine: Engine, stop: StopRequest) -> Iterator[None]:
    """Let the engine look, between batches, at whether the study was asked to stop."""
    engine.watch.is_asked = stop.is_overdue
    try:
        yield
    finally:
        engine.watch.clear()


def _run_party(
    party: RunGroup, engine: Engine, tell: Callable[[int, Record], None] | None, stop: StopRequest
) -> list[Exception]:
    """Run a party to its end, or until it is asked to stop; return the errors of runs that failed."""
    errors: list[Exception] = []

    def on_failure(at: int, error: Exception) -> None:
        party.fail(at, error)
        errors.append(error)

    def on_records(records: list[tuple[int, Record]]) -> None:
        _keep_ways(party.journal, engine)
        is_asked = stop.is_asked()
        party.write(records, save_now=is_asked)
        if tell is not None:
            for at, record in records:
                tell(at, record)
        if is_asked and party.unfinished:
            raise stop.after_round(party.saved_round)

    drive(party.runs, engine, on_records, on_failure)
    party.end()
    return errors


def _keep_ways(journal: Journal, engine: Engine) -> None:
    """Keep how the engine chose to run: another choice would add the same numbers in another order."""
    ways = engine.tuning()
    if len(ways) > len(journal.facts.get("ways", ())):
        journal.set_fact("ways", ways)


def _note_changes(journal: Journal, engine: Engine, now: dict[str, Any]) -> None:
    """Let the engine run as it did before, and say what else is not as it was."""
    with as_written(f"The journal in {journal.folder}"):
        engine.use_tuning(journal.facts.get("ways", {}))
        before = None if journal.earlier is None else flat(journal.earlier)
    if before is None:
        return
    changed = [name for name, value in flat(now).items() if before.get(name) != value]
    if changed:
        told = "; ".join(f"{name} was {before.get(name)} and is {flat(now)[name]}" for name in changed)
        warnings.warn(
            f"{journal.folder} goes on in other circumstances ({told}): the last digits may differ from those of a "
            "run that was never stopped.",
            stacklevel=2,
        )


def _notes(study: Study, notes: list[str]) -> dict[str, Any]:
    """Return what a reader of the journal should know of how the study was set up."""
    starts = starts_note(study)
    told = notes if starts is None else [starts, *notes]
    return {"notes": told} if told else {}


def _facts(engine: Engine, deterministic: bool) -> dict[str, Any]:
    """Return how and on what the study is run: all that decides in which order numbers are added."""
    return {"engine": engine.name, **engine.fingerprint(), "deterministic": deterministic}
