"""Availability traces: recorded intervals of all clients in flat arrays, queried for all clients at once.

Each client has intervals [start, end) in seconds, in the order of time and without overlap. Each interval has a state:
`up` (may train), `evaluate` (may only evaluate) or `down`. A client is down at all times without an interval. The
largest end is the length of the trace.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Floats, Ids
from turnout.errors import DataError

STATES = ("down", "evaluate", "up")
DOWN, EVALUATE, UP = range(len(STATES))
MOST_CLIENTS = 1 << 24  # a larger id is an error, not a federation with millions of empty traces
MOST_SECONDS = 1e10  # three centuries; a later time is an error, or in another unit
Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of intervals, for error messages that name a row by its place in the file."""

    name: str = "trace"
    unit: str = "row"
    first: int = 0  # number of row 0 in messages

    def place(self, row: int) -> str:
        """Return the place of a row in the file, as text."""
        return f"{self.name}, {self.unit} {row + self.first}"


IN_MEMORY = Origin()


@dataclass(frozen=True, slots=True)
class Intervals:
    """A table of unchecked intervals, one entry per row in each column."""

    clients: Ids
    starts: Floats
    ends: Floats
    states: Codes


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Intervals of all clients in flat arrays: client i has offsets[i] : offsets[i + 1], in the order of time."""

    offsets: Ids
    starts: Floats
    ends: Floats
    states: Codes

    @classmethod
    def of(cls, rows: Intervals, num_clients: int | None = None, origin: Origin = IN_MEMORY) -> "Trace":
        """Return the trace of these intervals; raise DataError about the first invalid row."""
        _check(rows, MOST_CLIENTS if num_clients is None else num_clients, origin)
        count = int(rows.clients.max()) + 1 if num_clients is None else num_clients
        order = np.argsort(rows.clients, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(rows.clients, minlength=count))])
        return cls(offsets, rows.starts[order], rows.ends[order], rows.states[order])

    @property
    def num_clients(self) -> int:
        """Number of clients; some may have no interval."""
        return len(self.offsets) - 1

    @property
    def length_seconds(self) -> float:
        """Length of the trace."""
        return float(self.ends.max())

    def states_at(self, seconds: float) -> Codes:
        """Return the state of every client at a time, by one binary search for all clients."""
        place = self._last_started(seconds)
        inside = place >= self.offsets[:-1]
        safe = np.where(inside, place, 0)
        inside &= seconds < self.ends[safe]
        return np.where(inside, self.states[safe], DOWN).astype(np.int8)

    def _last_started(self, seconds: float) -> Ids:
        """Return the position of each client's last interval with start <= seconds; one before its first if none."""
        low, high = self.offsets[:-1].copy(), self.offsets[1:].copy()
        for _ in range(int(np.diff(self.offsets).max(initial=0)).bit_length()):
            middle = (low + high) // 2
            has_started = self.starts[np.minimum(middle, len(self.starts) - 1)] <= seconds
            is_open = low < high
            low = np.where(is_open & has_started, middle + 1, low)
            high = np.where(is_open & ~has_started, middle, high)
        return low - 1

    def share_up(self, edges: Floats) -> Floats:
        """Return the exact mean share of available clients between each two neighbouring times."""
        is_up = self.states == UP
        area = _area(np.sort(self.starts[is_up]), edges) - _area(np.sort(self.ends[is_up]), edges)
        return np.diff(area) / np.diff(edges) / max(self.num_clients, 1)

    def seconds_up(self) -> Floats:
        """Return the total time each client is available."""
        owner = np.repeat(np.arange(self.num_clients), np.diff(self.offsets))
        durations = np.where(self.states == UP, self.ends - self.starts, 0.0)
        return np.bincount(owner, durations, self.num_clients).astype(np.float64)


def _area(sorted_times: Floats, edges: Floats) -> Floats:
    """Return Σ max(t − s, 0) over the times s, for every edge t."""
    before = np.searchsorted(sorted_times, edges)
    total = np.concatenate([[0.0], np.cumsum(sorted_times)])
    return np.asarray(before * edges - total[before])


def _check(rows: Intervals, limit: int, origin: Origin) -> None:
    """Raise DataError about the first invalid row."""
    clients, starts, ends = rows.clients, rows.starts, rows.ends
    if len(clients) == 0:
        raise DataError(f"{origin.name}: the trace is empty: it has no interval. Write one row per interval.")
    order = np.argsort(clients, kind="stable")
    before, after = order[:-1], order[1:]  # rows that follow one another, client by client
    same = clients[before] == clients[after]
    back, over = np.zeros(len(order), dtype=bool), np.zeros(len(order), dtype=bool)
    back[after] = same & (starts[after] < starts[before])
    over[after] = same & (starts[after] < ends[before])
    rules = (
        (~(np.isfinite(starts) & np.isfinite(ends)), "start and end must be finite; got {start} and {end}"),
        ((starts < 0) | (ends < 0), "times must not be negative; got {start} and {end}"),
        (ends > MOST_SECONDS, "times must be at most {longest:g} seconds; got {end}"),
        (ends <= starts, "an interval must end after it starts; got {start} to {end}"),
        ((clients < 0) | (clients >= limit), "there is no client {client}; ids go from 0 to {last}"),
        (back, "time goes backwards for client {client}: {start} comes after a later interval"),
        (over, "client {client} has overlapping intervals: {start} is before the end of the one before"),
    )
    firsts = [(int(np.argmax(wrong)), text) for wrong, text in rules if wrong.any()]
    if firsts:
        row, text = min(firsts, key=lambda first: first[0])
        what = text.format(
            client=clients[row], start=f"{starts[row]:g}", end=f"{ends[row]:g}", last=limit - 1, longest=MOST_SECONDS
        )
        raise DataError(f"{origin.place(row)}: {what}. Correct the trace; nothing of it was used.")
