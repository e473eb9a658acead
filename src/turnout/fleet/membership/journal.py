"""Replayed membership: the clients that belonged to a recorded run, round by round.

Intuition: a device that joined the real run in its fifth round joins the replay in its fifth round.

    client l is a member in round t  ⇔  it was one in round ((t − 1) mod R) + 1 of the recording, which has R rounds

What an arrival or a departure means for the objective is the server's choice: see the settings of `turnover`.

Reduces to: the federation without membership for a recording in which nobody joined or left.
Reference: none needed.
"""

from collections.abc import Iterator

from turnout.array_types import Ids
from turnout.errors import Problem
from turnout.fleet.replay import Folder, Recording, RunSeed, recording_of, recording_problems
from turnout.protocols import Population, View
from turnout.settings import rule


@rule("fleet.membership")
class ReplayedMembership:
    """Arrivals and departures from a journal."""

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

    def members(self, view: View) -> Ids:
        """Return who belonged in the recorded round."""
        members = self.recording.members_in(view.round)
        return members[members < view.population.num_clients]
