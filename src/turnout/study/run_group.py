"""A run group: runs that advance together, round by round. Each round of a group is one transaction of the journal.

A checkpoint holds all runs of a group at one round, so that they resume together. The group also saves one whenever a
run ends: the others must not resume from a round in which that run was still in the group. A run that fails while
others continue leaves the group, and is run again from its start in a group of its own. If all remaining runs fail,
they are run again together, from their checkpoint.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from turnout.checkpoint import Checkpoint, CheckpointStore, LastModel, Save
from turnout.coordinator import State
from turnout.errors import JournalError, TurnoutError
from turnout.journal import Failure, Journal
from turnout.requests import Record
from turnout.study.driver import Run
from turnout.study.run_factory import RunFactory, RunKey
from turnout.study.task_parts import num_outputs
from turnout.untrusted_input import UNLIKELY, as_written, in_brief


def _checked_state(state: State, round: int, rounds: int) -> State:
    """Return the state; raise ValueError if it is not one that an unfinished run has after this round."""
    if not state.restart <= state.round == round < rounds:
        raise ValueError(f"round {state.round} of {rounds}, and the journal says {round}")
    return state


def error_text(error: Exception) -> str:
    """Return the text of an error for the journal."""
    return str(error) if isinstance(error, TurnoutError) else in_brief(error)


@dataclass(slots=True, kw_only=True)
class RunGroup:
    """Runs that advance together, with their journal and their checkpoints."""

    journal: Journal
    store: CheckpointStore | None  # None: the study is kept in memory
    checkpoint: Checkpoint
    runs: list[Run]
    ids: list[int]  # of the runs, in the journal
    first_single: int  # number of the first group that has one run only
    is_resumed: bool = False  # whether it started from a checkpoint and has written no round since
    unfinished: set[int] = field(init=False)  # positions in runs
    failing: dict[int, Exception] = field(init=False, default_factory=dict)  # errors since the last written round
    saved_round: int | None = None  # round of the last checkpoint; None: there is none
    saved_at: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.unfinished = set(range(len(self.runs)))

    @classmethod
    def of(
        cls, run_factory: RunFactory, number: int, run_keys: Sequence[RunKey], journal: Journal, first_single: int
    ) -> "RunGroup":
        """Return a group of runs, each at its start or at its checkpoint.

        Args:
            run_factory: makes the runs.
            number: number of the group in the journal.
            run_keys: the runs of the group.
            journal: journal of the study.
            first_single: number of the first group of one run, which failed while others continued.
        """
        run_factory.keep_only(run_keys)
        runs = [run_factory.run(at, run_key) for at, run_key in enumerate(run_keys)]
        ids = [journal.begin(run_factory.info(key, run, number)) for key, run in zip(run_keys, runs, strict=True)]
        store, files = None, journal.checkpoint(number)
        if journal.folder is not None:
            store = CheckpointStore(journal.folder, number, files)
        if store is not None and files:
            round = journal.checkpoint_round(number)
            states = store.restore({id: run.state for run, id in zip(runs, ids, strict=True)})
            with as_written(str(store.folder / files[-1].name)):
                for run, id in zip(runs, ids, strict=True):
                    run.state = _checked_state(states[id], round, run.plan.rounds)
        group = cls(
            journal=journal,
            store=store,
            checkpoint=run_factory.study.checkpoint,
            runs=runs,
            ids=ids,
            first_single=first_single,
            is_resumed=bool(files),
        )
        group.saved_round = runs[0].state.round if files else None
        return group

    def write(self, records: Sequence[tuple[int, Record]], *, save_now: bool) -> None:
        """Write a round to the journal, with a checkpoint if one is due."""
        entries = [(self.ids[at], record) for at, record in records]
        ended = [at for at, record in records if record.finished]
        round = records[0][1].round
        failed = {
            self.ids[at]: Failure(error_text(error), self.first_single + self.ids[at])
            for at, error in self.failing.items()
        }
        is_first = self.saved_round is None  # a run that is stopped early then need not start again
        is_due = self.checkpoint.is_due(round, time.monotonic() - self.saved_at)
        due = ended or failed or save_now or is_first or is_due
        if self.store is None or round == 0 or not due:  # a run that is stopped in round 0 starts again
            self.journal.write(entries, failed=failed)
            self.journal.last_models |= self._last_models(records)
        else:
            save = self._save(self.store, round, records)
            self.journal.write(entries, save, failed)
            self.store.settle(save)
            self.saved_round, self.saved_at = round, time.monotonic()
        self.unfinished.difference_update(ended)
        self.failing.clear()
        self.is_resumed = False

    def rounds_ahead(self, later: int) -> float:
        """Return how many rounds like the next one are to come; `later` are those of all runs in later groups."""
        own = sum(self.runs[at].plan.rounds - self.runs[at].state.round for at in self.unfinished)
        return (own + later) / max(len(self.unfinished), 1)

    def fail(self, at: int, error: Exception) -> None:
        """Take a failed run out of the group; raise if it has just resumed, since its checkpoint may be damaged."""
        if self.is_resumed and isinstance(error, UNLIKELY):
            raise self.resume_error(error) from error
        self.unfinished.discard(at)
        self.failing[at] = error

    def end(self) -> None:
        """Record the runs that failed when no other run was left; the last checkpoint still holds them."""
        for at, error in self.failing.items():
            self.journal.finish(self.ids[at], "failed", error_text(error))

    def resume_error(self, error: Exception) -> JournalError:
        """Return the error for a group that fails in the first round after it resumed."""
        return JournalError(
            f"{self.journal.folder} cannot resume from its checkpoint ({in_brief(error)}): the checkpoint was changed, "
            "this machine cannot run it, or a rule of your own cannot continue from its saved memory. "
            "Bring back a good copy, or run the study again in another output folder."
        )

    def _save(self, store: CheckpointStore, round: int, records: Sequence[tuple[int, Record]]) -> Save:
        ended = {at for at, record in records if record.finished}
        going_on = {self.ids[at]: self.runs[at].state for at in sorted(self.unfinished.difference(ended))}
        return store.save(round, going_on, self._last_models(records))

    def _last_models(self, records: Sequence[tuple[int, Record]]) -> dict[int, LastModel]:
        """Return the last models of the runs that have ended, by run id."""
        models = {}
        for at, record in records:
            if record.finished:
                task, state = self.runs[at].task, self.runs[at].state
                shape, outputs = task.federation.example_shape, num_outputs(task.federation)
                models[self.ids[at]] = LastModel.of(task.module, state, shape, outputs, record.client_models)
        return models

    def mark_unfinished(self, status: str) -> None:
        """Record that the unfinished runs have stopped; a full disk has raised its own error already."""
        with suppress(JournalError):
            for at in sorted(self.unfinished):
                self.journal.finish(self.ids[at], status)
