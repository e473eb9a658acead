"""Run a study: every arm with every seed, in groups that advance together; each round goes to the journal."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from turnout.analysis.compare import Comparison, compare
from turnout.analysis.target import target_of
from turnout.engine import Engine, Interrupted, Ray, Sequential, Vectorised
from turnout.errors import ConfigError, EngineError, RunsFailed, StudyNote, did_you_mean
from turnout.journal import Data, Journal, Loaded, frames, load
from turnout.models.user_modules import build_module
from turnout.requests import Record
from turnout.streams import Streams
from turnout.study.driver import World, drive
from turnout.study.fleet_preview import start_notes
from turnout.study.interruption import StopRequest, handle_signals
from turnout.study.notebook_view import as_html
from turnout.study.resolve import resolved_settings
from turnout.study.run_display import show_progress
from turnout.study.run_factory import RunFactory, RunKey
from turnout.study.run_group import RunGroup
from turnout.study.study import Enough, OnProgress, Study
from turnout.study.tracking import check_tracking, with_trackers
from turnout.study.user_models import initial_weights_note
from turnout.track.tracker import flat
from turnout.untrusted_input import UNLIKELY, as_written, count_of
from turnout.world.simulation import simulate

ENGINES: dict[str, type[Engine]] = {"vectorised": Vectorised, "sequential": Sequential, "ray": Ray}
READING = "reading data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The results of a study."""

    study: Study
    loaded: Loaded  # the journal as pandas frames
    folder: Path | None
    was_finished: bool = False  # whether the folder already had all results

    def __repr__(self) -> str:
        return f"Result({self.study!r}, {'in memory' if self.folder is None else self.folder})"

    def _repr_html_(self) -> str:
        """Return the comparison as a notebook shows it."""
        return as_html(self.comparison, repr(self))

    def state_dict(
        self, arm: str, seed: int, model: int = 0, client: int | None = None, which: str | None = None
    ) -> dict[str, Tensor]:
        """Return the last model of a run as a PyTorch state dict; of several models, the one with this number.

        It is the model of the final loss and accuracy: with FedExP the mean of the last two iterates. Running
        statistics are the trained ones; integer buffers and frozen parameters are those of the module. With a client,
        it is the model that this client uses; with APFL the mixture, or its own part if `which` is "personal".
        """
        return self.loaded.state_dict(arm, seed, model, client, which)

    def module(
        self, arm: str, seed: int, model: int = 0, client: int | None = None, which: str | None = None
    ) -> nn.Module:
        """Return the same as a new module, on the CPU and in evaluation mode."""
        last = self.loaded.last_model(arm, seed).chosen(model, client, which)
        generator = Streams(seed).torch_generator("init")
        return last.put_into(
            build_module(self.study.versions()[arm].model, last.example_shape, last.num_outputs, generator)
        )

    @property
    def failures(self) -> dict[tuple[str, int], str]:
        """The reason why each run failed, by arm and seed; empty if all runs are finished."""
        return self.loaded.failures

    def comparison(self) -> Comparison:
        """Return the comparison of the arms."""
        return compare(self.loaded, target=target_of(self.study.target))

    def table(self) -> str:
        """Return the comparison as a text table."""
        return self.comparison().text()

    def verdict(self) -> str:
        """Return the result of the comparison in a sentence."""
        return self.comparison().verdict()


def engine_named(engine: str | Engine, *, deterministic: bool = False, address: str | None = None) -> Engine:
    """Return the engine of this name; an address is that of a cluster."""
    if not isinstance(engine, str):
        if deterministic and isinstance(engine, Vectorised) and not engine.deterministic:
            raise ConfigError(
                "A deterministic run needs an engine without autotuning; got a Vectorised with it. "
                "Pass Vectorised(deterministic=True), or its name."
            )
        return engine
    if engine not in ENGINES:
        *others, last = ENGINES
        near = did_you_mean(engine, list(ENGINES))
        raise ConfigError(f"There is no engine {engine!r}.{near} There are {', '.join(others)} and {last}.")
    if address is not None and ENGINES[engine] is not Ray:
        raise ConfigError(f"Only the engine ray has an address; got {address!r:.80} for {engine}. Add --engine ray.")
    if ENGINES[engine] is Ray:
        return Ray(address)
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
    enough: Enough | None = None,
    world: World = simulate,
) -> Result:
    """Run what is not in the folder yet; data, plans and models are checked before anything is written."""
    folder = None if out is None else Path(out)
    check_tracking(study, folder)
    with closing(engine_named(engine, deterministic=deterministic)) as worker:
        how: dict[str, Any] = {"on_progress": on_progress, "together": together, "progress": progress}
        how |= {"deterministic": deterministic, "accept_changed_data": accept_changed_data, "world": world}
        how["enough"] = enough or all_clear
        return _run_study(study, folder, worker, **how)


def _run_study(
    study: Study,
    folder: Path | None,
    worker: Engine,
    *,
    on_progress: OnProgress | None,
    together: int | None,
    progress: bool,
    deterministic: bool,
    accept_changed_data: bool,
    enough: Enough,
    world: World,
) -> Result:
    started = time.monotonic()
    run_factory = RunFactory(study, worker.device, world)
    stages = _stages(study, list(run_factory.versions))
    first = stages[0][: len(run_factory.versions)]
    worker.watch.tell(READING)
    notes = start_notes([(key.arm, run_factory.run(0, key)) for key in first])
    data = Data({key: run_factory.digest(key) for key in first}, accept_changed_data, sum(map(len, stages)))
    facts = _facts(worker, deterministic)
    journal = Journal.create(
        folder, study=study.name, config=resolved_settings(study), facts=facts | _notes(study, notes), data=data
    )
    try:
        if "together" not in journal.facts:
            journal.set_fact("together", run_factory.group_size(first) if together is None else max(1, together))
        with as_written(f"The journal in {folder}"):
            size = count_of(journal.facts["together"], "how many runs advance together", least=1)
        with ExitStack() as stack:

            @cache
            def tell() -> OnProgress | None:
                """Announce the run, once, when it is known that something is left to do."""
                _warn_of_changes(journal, worker, facts)
                for note in notes:
                    warnings.warn(note, StudyNote, stacklevel=5)
                shown = on_progress
                if progress and sys.stderr is not None:
                    where = f"{worker.name}   {'in memory' if folder is None else folder}"
                    finished = journal.finished_runs()
                    shown = stack.enter_context(show_progress(study, worker.watch, where, finished, started, shown))
                return stack.enter_context(with_trackers(study, folder, run_factory.configs, shown))

            was_finished = _run_stages(run_factory, stages, size, journal, worker, tell, enough)
    except BaseException:
        journal.close()
        raise
    return _result(study, journal, was_finished=was_finished)


def _stages(study: Study, arms: Sequence[str]) -> list[list[RunKey]]:
    """Return the runs that each look of a study adds."""
    looks = study.looks
    return [
        [RunKey(arm, seed) for seed in seeds[len(before) :] for arm in arms] for before, seeds in pairwise([(), *looks])
    ]


def _run_stages(
    run_factory: RunFactory,
    stages: Sequence[Sequence[RunKey]],
    size: int,
    journal: Journal,
    engine: Engine,
    tell: Callable[[], OnProgress | None],
    enough: Enough,
) -> bool:
    """Run look by look until it is enough; return whether nothing was left to do."""
    counts = [-(-len(stage) // size) for stage in stages]
    first_single, was_finished = sum(counts), True
    for place, stage in enumerate(stages):
        left = _groups_left(journal, stage, size, sum(counts[:place]), first_single)
        if left:
            was_finished = False
            errors = _run_groups(run_factory, left, first_single, journal, engine, tell())
            if errors and not journal.finished_runs():
                raise errors[0]
        if place + 1 < len(stages) and enough(frames(journal)):
            break
    return was_finished


def all_clear(loaded: Loaded) -> bool:
    """Whether every difference from the first arm is clear, or cannot become so by more seeds."""
    return all(
        row.difference is None or row.difference.low is None or row.difference.is_clear for row in compare(loaded).rows
    )


def _result(study: Study, journal: Journal, *, was_finished: bool) -> Result:
    """Return the results; warn of runs that failed."""
    if journal.folder is None:
        result = Result(study=study, loaded=frames(journal), folder=None)
    else:
        journal.close()
        result = Result(study=study, loaded=load(journal.folder), folder=journal.folder, was_finished=was_finished)
    if result.failures:
        warnings.warn(failure_text(result.failures, len(result.loaded.runs)), RunsFailed, stacklevel=4)
    return result


def _groups_left(
    journal: Journal, run_keys: Sequence[RunKey], size: int, first_group: int, first_single: int
) -> list[tuple[int, list[RunKey]]]:
    """Return the unfinished run groups by number, then groups of one run that failed while its group continued."""
    finished, single = journal.finished_runs(), journal.runs_alone(first_single)
    groups: dict[int, list[RunKey]] = {}
    for at, key in enumerate(run_keys):
        if key not in finished and key not in single:
            groups.setdefault(first_group + at // size, []).append(key)
    groups |= {single[key]: [key] for key in run_keys if key in single and key not in finished}
    failures = journal.failures()
    for arm, seed in [key for key in run_keys if key in failures]:
        why = failures[arm, seed]
        warnings.warn(f"{arm}, seed {seed}, failed before and is run again. Its error was: {why}", stacklevel=3)
    return list(groups.items())


def failure_text(failures: Mapping[tuple[str, int], str], runs: int) -> str:
    """Return a message with the failed runs and their errors."""
    each = "\n".join(f"  {arm}, seed {seed}: {why}" for (arm, seed), why in failures.items())
    return f"{len(failures)} of {runs} runs failed, and the others are finished:\n{each}"


def _run_groups(
    run_factory: RunFactory,
    groups: Sequence[tuple[int, Sequence[RunKey]]],
    first_single: int,
    journal: Journal,
    engine: Engine,
    on_progress: OnProgress | None,
) -> list[Exception]:
    """Run each group; return the errors of the runs that failed."""
    errors: list[Exception] = []
    with handle_signals(journal.folder is not None) as stop, _stop_between_batches(engine, stop):
        for place, (number, run_keys) in enumerate(groups):
            engine.watch.group = number
            later = sum(run_factory.versions[arm].rounds for _, keys in groups[place + 1 :] for arm, _ in keys)
            with stop.between_rounds():
                engine.watch.tell(READING)
                group = RunGroup.of(run_factory, number, run_keys, journal, first_single)
            tell = None if on_progress is None else _by_run(on_progress, run_keys)
            try:
                errors += _run_group(group, engine, tell, stop, later)
            except BaseException as error:
                group.mark_unfinished("interrupted" if isinstance(error, KeyboardInterrupt | EngineError) else "failed")
                if isinstance(error, Interrupted):
                    raise stop.within_round(group.saved_round) from error
                if group.is_resumed and isinstance(error, UNLIKELY):
                    raise group.resume_error(error) from error
                raise
    return errors


def _by_run(on_progress: OnProgress, run_keys: Sequence[RunKey]) -> Callable[[int, Record], None]:
    return lambda at, record: on_progress(*run_keys[at], record)


@contextmanager
def _stop_between_batches(engine: Engine, stop: StopRequest) -> Iterator[None]:
    """Let the engine check between batches whether to stop."""
    engine.watch.is_asked = stop.is_overdue
    try:
        yield
    finally:
        engine.watch.clear()


def _run_group(
    group: RunGroup, engine: Engine, tell: Callable[[int, Record], None] | None, stop: StopRequest, later: int
) -> list[Exception]:
    """Run a group to its end, or until a signal stops it; return the errors of the runs that failed.

    Args:
        group: the runs.
        engine: trains and measures.
        tell: called with the position of a run in the group and its record.
        stop: whether a signal has come.
        later: rounds of all runs in the groups that come after.
    """
    errors: list[Exception] = []

    def on_failure(at: int, error: Exception) -> None:
        group.fail(at, error)
        errors.append(error)

    def on_records(records: list[tuple[int, Record]]) -> None:
        _save_tuning(group.journal, engine)
        is_asked = stop.is_asked()
        group.write(records, save_now=is_asked)
        engine.watch.rounds_ahead = group.rounds_ahead(later)
        if tell is not None:
            for at, record in records:
                tell(at, record)
        if is_asked and group.unfinished:
            raise stop.after_round(group.saved_round)

    engine.watch.rounds_ahead = group.rounds_ahead(later)
    drive(group.runs, engine, on_records, on_failure)
    group.end()
    return errors


def _save_tuning(journal: Journal, engine: Engine) -> None:
    """Record how the engine ran the round that is written next: another way would add the same numbers otherwise."""
    tuning = engine.tuning()
    if tuning and tuning != journal.facts.get("tuning"):
        journal.set_fact("tuning", tuning)


def _warn_of_changes(journal: Journal, engine: Engine, now: dict[str, Any]) -> None:
    """Let the engine run as it did before; warn if the engine or the machine has changed."""
    with as_written(f"The journal in {journal.folder}"):
        engine.use_tuning(journal.facts.get("tuning", {}))
        before = None if journal.earlier is None else flat(journal.earlier)
    if before is None:
        return
    changed = [name for name, value in flat(now).items() if before.get(name) != value]
    if changed:
        changes = "; ".join(f"{name} was {before.get(name)} and is {flat(now)[name]}" for name in changed)
        warnings.warn(
            f"{journal.folder} resumes in another environment ({changes}): the last digits may differ from those "
            "of a run without the interruption.",
            stacklevel=2,
        )


def _notes(study: Study, notes: list[str]) -> dict[str, Any]:
    """Return the notes on a study for the journal."""
    about_weights = initial_weights_note(study)
    every_note = notes if about_weights is None else [about_weights, *notes]
    return {"notes": every_note} if every_note else {}


def _facts(engine: Engine, deterministic: bool) -> dict[str, Any]:
    """Return the engine, the machine and the options that decide the order in which numbers are added."""
    return {"engine": engine.name, **engine.fingerprint(), "deterministic": deterministic}
