"""Replayed membership: the clients that belonged to a recorded run, round by round.

Intuition: a device that joined the real run in its fifth round joins the replay in its fifth round.

    client l is a member in round t  ⇔  it was one in round ((t − 1) mod R) + 1 of the recording, which has R rounds

What an arrival or a departure means for the objective is the server's choice: see the settings of `turnover`.

Reduces to: the federation without membership for a recording in which nobody joined or left.
Reference: none needed.
"""

from turnout.array_types import Ids
from turnout.fleet.replay import Replay
from turnout.protocols import View
from turnout.settings import rule


@rule("fleet.membership")
class ReplayedMembership(Replay):
    """Arrivals and departures from a journal."""

    def members(self, view: View) -> Ids:
        """Return who belonged in the recorded round."""
        members = self.recording.members_in(view.round)
        return members[members < view.population.num_clients]
