"""Replayed availability: the clients that a recorded run had available, round by round.

Intuition: whoever was there in the third round of the real run is there in the third round of the replay.

    i ∈ A_t  ⇔  i was up in round ((t − 1) mod R) + 1 of the recording, which has R rounds

Reduces to: always available for a recording in which every client was up in every round.
Reference: none needed.
"""

import numpy as np

from turnout.array_types import Ids
from turnout.fleet.replay import Replay
from turnout.protocols import View
from turnout.settings import rule


@rule("fleet.availability")
class ReplayedAvailability(Replay):
    """Availability from a journal."""

    def up(self, view: View) -> Ids:
        """Return the members that were up in the recorded round."""
        everyone = view.population.everyone
        return np.asarray(everyone[self.recording.up_in(view.round)[everyone]])
