"""A party: the runs that advance together. Each round of all of them is one transaction of the journal.

A checkpoint is of all of them at one round, so that they go on together as they would have done. One is due whenever
a run ends, too: the others must not be taken back to a round in which it was still among them. A run that fails while
others go on leaves the party, and is tried again from its start in a party of its own; where all that are left fail,
they are tried again together, from their checkpoint.
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
from turnout.study.run_factory import Place, RunFactory
from turnout.study.task_parts import num_outputs
from turnout.untrusted_input import UNLIKELY, as_written, in_brief


def _at_round(state: State, round: int, rounds: int) -> State:
    """Return a state saved after this round of an unfinished run; raise a ValueError if it cannot be that."""
    if not state.restart <= state.round == round < rounds:
        raise ValueError(f"round {state.round} of {rounds}, and the journal says {round}")
    return state


def told(error: Exception) -> str:
    """Return an error as it is kept in the journal."""
    return str(error) if isinstance(error, TurnoutError) else in_brief(error)


@dataclass(slots=True, kw_only=True)
class RunGroup:
    """Some runs, where they are written, and how often they are saved."""

    journal: Journal
    keeper: CheckpointStore | None  # None: in memory
    checkpoint: Checkpoint
    runs: list[Run]
    ids: list[int]  # in the journal
    alone: int  # the number of the first party of one run
    is_taken_up: bool = False  # from a checkpoint, and no round written since
    unfinished: set[int] = field(init=False)
    failing: dict[int, Exception] = field(init=False, default_factory=dict)  # since the last round was written
    saved_round: int | None = None  # of the last checkpoint; None: there is none
    saved_at: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.unfinished = set(range(len(self.runs)))

    @classmethod
    def of(
        cls, run_factory: RunFactory, number: int, places: Sequence[Place], journal: Journal, alone: int
    ) -> "RunGroup":
        """Return the party of these places, each at its start or at its checkpoint.

        Args:
            run_factory: makes the runs.
            number: of the party, in the journal.
            places: whose runs are in it.
            journal: where they are written.
            alone: from here on parties are of one run, which failed while others went on.
        """
        run_factory.keep_only(places)
        runs = [run_factory.run(at, place) for at, place in enumerate(places)]
        ids = [journal.begin(run_factory.info(place, run, number)) for place, run in zip(places, runs, strict=True)]
        keeper, files = None, journal.checkpoint(number)
        if journal.folder is not None:
            keeper = CheckpointStore(journal.folder, number, files)
        if keeper is not None and files:
            round = journal.checkpoint_round(number)
            states = keeper.restore({id: run.state for run, id in zip(runs, ids, strict=True)})
            with as_written(str(keeper.folder / files[-1].name)):
                for run, id in zip(runs, ids, strict=True):
                    run.state = _at_round(states[id], round, run.plan.rounds)
        often = run_factory.study.checkpoint
        party = cls(
            journal=journal,
            keeper=keeper,
            checkpoint=often,
            runs=runs,
            ids=ids,
            alone=alone,
            is_taken_up=bool(files),
        )
        party.saved_round = runs[0].state.round if files else None
        return party

    def write(self, records: Sequence[tuple[int, Record]], *, save_now: bool) -> None:
        """Write a round, and save with it where that is due."""
        entries = [(self.ids[at], record) for at, record in records]
        ended = [at for at, record in records if record.finished]
        round = records[0][1].round
        gone = {self.ids[at]: Failure(told(error), self.alone + self.ids[at]) for at, error in self.failing.items()}
        is_first = self.saved_round is None  # a run that is stopped early must not begin again
        is_due = self.checkpoint.is_due(round, time.monotonic() - self.saved_at)
        due = ended or gone or save_now or is_first or is_due
        if self.keeper is None or round == 0 or not due:  # nothing comes before round 0: it is simply begun again
            self.journal.write(entries, failed=gone)
            self.journal.last_models |= self._last_models(ended)
        else:
            save = self._saved(self.keeper, round, ended)
            self.journal.write(entries, save, gone)
            self.keeper.settle(save)
            self.saved_round, self.saved_at = round, time.monotonic()
        self.unfinished.difference_update(ended)
        self.failing.clear()
        self.is_taken_up = False

    def fail(self, at: int, error: Exception) -> None:
        """Let the others go on without a run that cannot; one that has just been taken up may not be what was saved."""
        if self.is_taken_up and isinstance(error, UNLIKELY):
            raise self.cannot_go_on(error) from error
        self.unfinished.discard(at)
        self.failing[at] = error

    def end(self) -> None:
        """Note the runs that failed together, when no other was left: they are still in the last checkpoint."""
        for at, error in self.failing.items():
            self.journal.finish(self.ids[at], "failed", told(error))

    def cannot_go_on(self, error: Exception) -> JournalError:
        """Return what to say of a party that fails in the first round after it was taken up."""
        return JournalError(
            f"{self.journal.folder} does not go on from its checkpoint ({in_brief(error)}): it was changed, "
            "this machine cannot do it, or a rule of your own cannot go on from what it remembers. "
            "Bring back a good copy, or run the study again in another folder with --out."
        )

    def _saved(self, keeper: CheckpointStore, round: int, ended: list[int]) -> Save:
        going_on = {self.ids[at]: self.runs[at].state for at in sorted(self.unfinished.difference(ended))}
        return keeper.save(round, going_on, self._last_models(ended))

    def _last_models(self, ended: list[int]) -> dict[int, LastModel]:
        """Return the models of runs that have ended, by their ids in the journal."""
        found = {}
        for at in ended:
            task, state = self.runs[at].task, self.runs[at].state
            shape, outputs = task.federation.example_shape, num_outputs(task.federation)
            found[self.ids[at]] = LastModel.of(task.module, state, shape, outputs)
        return found

    def give_up(self, status: str) -> None:
        """Note that the rest is not being run; a disk that cannot take the note has been told of already."""
        with suppress(JournalError):
            for at in sorted(self.unfinished):
                self.journal.finish(self.ids[at], status)
