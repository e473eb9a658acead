"""A recorded run as a fleet: who belonged and was up in each round, and what became of each client's work.

Round t of a replay looks at round t of the recording; after the last recorded round it starts again at the first. Work
that the recording has is replayed as it was. A client that is asked in a round in which it has no recorded work, or for
more than it then did, is extrapolated from its other rounds:

    progress   one of its recorded jobs is drawn, keyed by (seed, "replay", round, client), and its share of the asked
               steps is taken: 0 of a job that was lost, 1 of one that was complete or cut off by a deadline
    speed      the median of its recorded seconds per step, transfers included

A client without any recorded work is extrapolated from those of all clients.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.axes import at
from turnout.errors import JournalError, Problem
from turnout.protocols import Population, View
from turnout.settings import Range, rule

Mask = NDArray[np.bool_]
Packed = NDArray[np.uint8]
READER = "turnout.journal.recorded_run:read_run"  # an address: the journal is a layer above the fleet


@dataclass(frozen=True, eq=False, kw_only=True)
class Jobs:
    """Recorded work, one entry per client and round in which it was handed out, sorted by client, then round."""

    clients: Ids
    rounds: Ids
    asked: Ids  # local steps
    progress: Ids  # steps done, whatever the server made of them
    seconds: Floats  # until then, transfers included; NaN: not known
    cut_off: Mask  # stopped by the server, or by the end of the recording; it would have gone on

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def share(self) -> Floats:
        """Share of the asked steps that each client would do if nobody stopped it."""
        return np.where(self.cut_off, 1.0, self.progress / np.maximum(self.asked, 1))

    @property
    def seconds_per_step(self) -> Floats:
        """Seconds per step, transfers included; NaN: not known."""
        return np.where(self.progress > 0, self.seconds / np.maximum(self.progress, 1), np.nan)


@dataclass(frozen=True, slots=True)
class RecordedPace:
    """The speed of some clients in a round, as recorded or extrapolated."""

    seconds_per_step: Floats
    steps: Ids  # that the recorded time is for; −1: none is recorded
    seconds: Floats  # the recorded time
    at_least: Floats  # seconds in which the client is known to have returned nothing

    def duration(self, steps: Ids) -> Floats:
        """Return the seconds from being handed so many steps to returning them."""
        by_pace = np.maximum(steps * self.seconds_per_step, self.at_least)
        return np.where(steps == self.steps, self.seconds, by_pace)

    def steps_by(self, deadline_seconds: float, steps: Ids) -> Ids:
        """Return how many of the steps a client can complete and upload by the deadline."""
        possible = np.floor(deadline_seconds / self.seconds_per_step + 1e-9)  # a step that ends at D counts
        possible = np.where(deadline_seconds <= self.at_least, 0, np.clip(possible, 0, steps)).astype(np.int64)
        return np.where(self.duration(steps) <= deadline_seconds, steps, possible)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """One recorded run."""

    name: str  # for messages: its folder, arm and seed
    num_clients: int
    planned_rounds: int  # of the run; more than are recorded if it did not finish
    up: Packed  # one row of bits per round, from round 1
    members: Packed | None  # one row of bits per round, from round 0; None: everyone, always
    jobs: Jobs

    @property
    def num_rounds(self) -> int:
        """Number of recorded rounds."""
        return len(self.up)

    @property
    def has_seconds(self) -> bool:
        """Whether it is recorded how long work took."""
        return bool(np.isfinite(self.jobs.seconds_per_step).any())

    def up_in(self, round: int) -> Mask:
        """Return for each client whether it was up in a round, counted from 1."""
        return self._bits(self.up, self.recorded_round(round) - 1)

    def members_in(self, round: int) -> Ids:
        """Return who belonged in a round; round 0 is before the first."""
        if self.members is None:
            return np.arange(self.num_clients)
        return np.flatnonzero(self._bits(self.members, self.recorded_round(round)))

    def recorded_round(self, round: int) -> int:
        """Return the recorded round that a round replays: after the last one, the first again."""
        return round if round == 0 else (round - 1) % self.num_rounds + 1

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return how many of the asked steps each client does if nobody stops it."""
        place, found = self._places(clients, view.round)
        progress, jobs = self.jobs.progress[place], self.jobs
        stopped = ~jobs.cut_off[place] & (progress < jobs.asked[place])
        recorded = np.where(stopped, np.minimum(progress, asked), asked)
        return np.where(found, recorded, self._drawn(asked, clients, view))

    def has_progress(self, asked: Ids, clients: Ids, view: View) -> Mask:
        """Return whether it is recorded how many of the asked steps each client does in this round."""
        place, found = self._places(clients, view.round)
        progress = self.jobs.progress[place]
        is_covered = (asked <= progress) | (progress < self.jobs.asked[place])
        return np.asarray(found & is_covered & (view.round <= self.num_rounds))

    def pace(self, clients: Ids, view: View) -> RecordedPace:
        """Return the speed of these clients in this round."""
        place, found = self._places(clients, view.round)
        seconds, jobs = self.jobs.seconds[place], self.jobs
        progress, is_timed = jobs.progress[place], found & np.isfinite(seconds)
        has_pace = is_timed & (progress > 0)
        return RecordedPace(
            seconds_per_step=np.where(has_pace, jobs.seconds_per_step[place], self.usual_seconds[clients]),
            steps=np.where(has_pace, progress, -1),
            seconds=seconds,
            at_least=np.where(is_timed & jobs.cut_off[place] & (progress == 0), seconds, 0.0),
        )

    def has_pace(self, steps: Ids, clients: Ids, view: View, deadline_seconds: float | None) -> Mask:
        """Return whether it is recorded how long so many steps take each client, up to the deadline."""
        place, found = self._places(clients, view.round)
        seconds = self.jobs.seconds[place]
        until = np.inf if deadline_seconds is None else deadline_seconds
        is_seen = (steps <= self.jobs.progress[place]) | (self.jobs.cut_off[place] & (until <= seconds))
        is_timed = found & np.isfinite(seconds) & is_seen
        return np.asarray((is_timed | (steps == 0)) & (view.round <= self.num_rounds))

    @cached_property
    def usual_seconds(self) -> Floats:
        """Each client's median seconds per step; of a client without any, the median of the others' medians."""
        per_step = self.jobs.seconds_per_step
        known = np.flatnonzero(np.isfinite(per_step))
        clients = self.jobs.clients[known]
        ordered = per_step[known][np.lexsort((per_step[known], clients))]
        counts = np.bincount(clients, minlength=self.num_clients)
        first = np.cumsum(counts) - counts
        has = counts > 0
        low, high = first[has] + (counts[has] - 1) // 2, first[has] + counts[has] // 2
        usual = np.full(self.num_clients, np.nan)
        usual[has] = (ordered[low] + ordered[high]) / 2
        return np.where(has, usual, np.median(usual[has]) if has.any() else np.nan)

    @cached_property
    def _keys(self) -> Ids:
        return self.jobs.clients * (self.num_rounds + 1) + self.jobs.rounds

    @cached_property
    def _offsets(self) -> Ids:
        """Where each client's jobs begin, and where the last one's end."""
        return np.searchsorted(self.jobs.clients, np.arange(self.num_clients + 1))

    def _places(self, clients: Ids, round: int) -> tuple[Ids, Mask]:
        """Return where each client's job of a round is, and whether there is one; without one, any place."""
        wanted = clients * (self.num_rounds + 1) + self.recorded_round(round)
        place = np.minimum(np.searchsorted(self._keys, wanted), len(self.jobs) - 1)
        return place, self._keys[place] == wanted

    def _drawn(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return the steps of clients that do as in one of their recorded jobs, or in anybody's if they have none."""
        draw = view.streams.uniforms("replay", view.round, clients)[:, 0]
        counts = np.diff(self._offsets)[clients]
        own = self._offsets[clients] + np.floor(draw * counts).astype(np.int64)
        pick = np.where(counts > 0, own, np.floor(draw * len(self.jobs)).astype(np.int64))
        share = self.jobs.share[np.minimum(pick, len(self.jobs) - 1)]
        steps = np.floor(share * asked + 0.5).astype(np.int64)
        return np.where(share > 0, np.clip(steps, np.minimum(asked, 1), asked), 0)

    def _bits(self, rows: Packed, row: int) -> Mask:
        return np.unpackbits(rows[row], count=self.num_clients).view(np.bool_)


RunSeed = Annotated[int, Range(least=0, ceiling=1e15)]
Folder = str | Path | Recording  # that holds a recorded run, or the run as read in Python


def recording_of(folder: Folder, arm: str | None, seed: int | None) -> Recording:
    """Return the recording that a rule's settings name; an unchanged folder is read once."""
    return folder if isinstance(folder, Recording) else cast(Recording, cast(Any, at(READER))(folder, arm, seed))


def recording_problems(folder: Folder, arm: str | None, seed: int | None, population: Population) -> Iterator[Problem]:
    """Yield why a run cannot be replayed on these clients."""
    try:
        recording = recording_of(folder, arm, seed)
    except JournalError as error:
        yield Problem(f"A run must be read to be replayed. {error}", "fleet")
        return
    if recording.num_clients < population.num_clients:
        yield Problem(
            f"A replay needs a recording of at least as many clients as the study has; {recording.name} has "
            f"{recording.num_clients}, and the study {population.num_clients}. Use fewer clients, or another run.",
            "fleet",
        )


@rule("fleet")
class Replay:
    """Settings that all rules of a replay have: which recorded run they replay."""

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
