"""Replayed work: each client completes as many steps as in the same round of a recorded run.

Intuition: a phone that gave up half-way in the third round of the real run gives up there in the replay.

    s_i = min(τ_i, steps that i did)       if i stopped by itself in this round of the recording, or was lost (0)
    s_i = τ_i                              if it did all it was asked, or a deadline cut it off: the clock decides again
    s_i = round(share · τ_i)               if it was not asked then; share of a job drawn from its other rounds

Reduces to: complete work for a recording in which every client did all it was asked.
Reference: none needed.
"""

from collections.abc import Iterator

from turnout.array_types import Ids
from turnout.errors import Problem
from turnout.fleet.replay import Folder, Mask, Recording, RunSeed, recording_of, recording_problems
from turnout.protocols import Population, View
from turnout.settings import rule


@rule("fleet.work")
class ReplayedWork:
    """Completed work from a journal."""

    folder: Folder  # folder of the recorded run, which `turnout run` or a deployment wrote
    arm: str | None = None  # arm of the recorded run; none is its only arm
    seed: RunSeed | None = None  # seed of the recorded run; none is its only seed

    @property
    def recording(self) -> Recording:
        """The recorded run."""
        return recording_of(self.folder, self.arm, self.seed)

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the run cannot be replayed on these clients."""
        yield from recording_problems(self.folder, self.arm, self.seed, population)

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return the recorded steps; of clients that were not asked then, those of a drawn job."""
        return self.recording.done(asked, clients, view)

    def is_recorded(self, asked: Ids, clients: Ids, view: View) -> Mask:
        """Return for each client whether its steps are recorded, not extrapolated."""
        return self.recording.has_progress(asked, clients, view)
