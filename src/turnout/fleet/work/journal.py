"""Replayed work: each client completes as many steps as in the same round of a recorded run.

Intuition: a phone that gave up half-way in the third round of the real run gives up there in the replay.

    s_i = min(τ_i, steps that i did)       if i stopped by itself in this round of the recording, or was lost (0)
    s_i = τ_i                              if it did all it was asked, or a deadline cut it off: the clock decides again
    s_i = round(share · τ_i)               if it was not asked then; share of a job drawn from its other rounds

Reduces to: complete work for a recording in which every client did all it was asked.
Reference: none needed.
"""

from turnout.array_types import Ids
from turnout.fleet.replay import Mask, Replay
from turnout.protocols import View
from turnout.settings import rule


@rule("fleet.work")
class ReplayedWork(Replay):
    """Completed work from a journal."""

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return the recorded steps; of clients that were not asked then, those of a drawn job."""
        return self.recording.done(asked, clients, view)

    def is_recorded(self, asked: Ids, clients: Ids, view: View) -> Mask:
        """Return for each client whether its steps are recorded, not extrapolated."""
        return self.recording.has_progress(asked, clients, view)
