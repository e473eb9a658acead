"""A party: the runs that advance together. Each round of all of them is one transaction of the journal.

A checkpoint is of all of them at one round, so that they go on together as they would have done. One is due whenever
a run ends, too: the others must not be taken back to a round in which it was still among them.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from turnout.checkpoint import Checkpoint, Keeper, Save
from turnout.engine import Run
from turnout.errors import JournalError
from turnout.journal import Journal
from turnout.requests import Record
from turnout.study.workshop import Place, Workshop


@dataclass(slots=True, kw_only=True)
class Party:
    """Some runs, where they are written, and how often they are saved."""

    journal: Journal
    keeper: Keeper | None  # None: in memory
    checkpoint: Checkpoint
    runs: list[Run]
    ids: list[int]  # in the journal
    is_taken_up: bool = False  # from a checkpoint, and no round written since
    unfinished: set[int] = field(init=False)
    saved_at: float = field(init=False, default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.unfinished = set(range(len(self.runs)))

    @classmethod
    def of(cls, workshop: Workshop, number: int, places: Sequence[Place], journal: Journal) -> "Party":
        """Return the party of these places, each at its start or at its checkpoint."""
        workshop.keep_only(places)
        runs = [workshop.run(at, place) for at, place in enumerate(places)]
        ids = [journal.begin(workshop.info(place, run, number)) for place, run in zip(places, runs, strict=True)]
        keeper, files = None, journal.checkpoint(number)
        if journal.folder is not None:
            keeper = Keeper(journal.folder, number, files)
        if keeper is not None and files:
            states = keeper.restore({id: run.state for run, id in zip(runs, ids, strict=True)})
            for run, id in zip(runs, ids, strict=True):
                run.state = states[id]
        often = workshop.study.checkpoint
        return cls(journal=journal, keeper=keeper, checkpoint=often, runs=runs, ids=ids, is_taken_up=bool(files))

    def write(self, records: Sequence[tuple[int, Record]], *, save_now: bool) -> None:
        """Write a round, and save with it where that is due."""
        entries = [(self.ids[at], record) for at, record in records]
        ended = [at for at, record in records if record.finished]
        round = records[0][1].round
        due = ended or save_now or self.checkpoint.is_due(round, time.monotonic() - self.saved_at)
        if self.keeper is None or round == 0 or not due:  # nothing comes before round 0: it is simply begun again
            self.journal.write(entries)
        else:
            save = self._saved(self.keeper, round, ended)
            self.journal.write(entries, save)
            self.keeper.settle(save)
            self.saved_at = time.monotonic()
        self.unfinished.difference_update(ended)
        self.is_taken_up = False

    def _saved(self, keeper: Keeper, round: int, ended: list[int]) -> Save:
        going_on = {self.ids[at]: self.runs[at].state for at in sorted(self.unfinished.difference(ended))}
        return keeper.save(round, going_on, {self.ids[at]: self.runs[at].state for at in ended})

    def give_up(self, status: str) -> None:
        """Note that the rest is not being run; a disk that cannot take the note has been told of already."""
        with suppress(JournalError):
            for at in sorted(self.unfinished):
                self.journal.finish(self.ids[at], status)
