"""Replayed availability: the clients that a recorded run had available, round by round.

Intuition: whoever was there in the third round of the real run is there in the third round of the replay.

    i ∈ A_t  ⇔  i was up in round ((t − 1) mod R) + 1 of the recording, which has R rounds

Reduces to: always available for a recording in which every client was up in every round.
Reference: none needed.
"""

from collections.abc import Iterator

import numpy as np

from turnout.array_types import Ids
from turnout.errors import Problem
from turnout.fleet.replay import Folder, Recording, RunSeed, recording_of, recording_problems
from turnout.protocols import Population, View
from turnout.settings import rule


@rule("fleet.availability")
class ReplayedAvailability:
    """Availability from a journal."""

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

    def up(self, view: View) -> Ids:
        """Return the members that were up in the recorded round."""
        everyone = view.population.everyone
        return np.asarray(everyone[self.recording.up_in(view.round)[everyone]])
