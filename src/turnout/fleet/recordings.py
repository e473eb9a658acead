"""Published recordings of phones as traces: FLASH and FedScale, each re-packed into one JSON file.

FLASH: `{"horizon_s": …, "devices": [{"two_state": [[seconds, state], …], "three_state_50": …, …}, …]}`. A state lasts
until the next event. With two states, 1 is charging: up. With three, 2 is charging: up, and 1 is enough battery:
evaluate.
FedScale: `{"horizon_s": …, "devices": [{"unavailable": [[start, duration], …]}, …]}`, each scaled to the horizon.

Both have an artefact, which is removed unless keep_artefact is set. In the re-packed FLASH, every phone is available
for the first 300 seconds. Without the artefact each phone has from the start the state that it has after them. Times do
not shift, so that six days stay six days and a repeated trace keeps its time of day. FedScale's recordings end before
their stated horizon, so that all phones would be up from there on. Without the artefact the trace ends with the last
absence of any phone.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from turnout.errors import DataError
from turnout.fleet.traces import DOWN, EVALUATE, UP, Intervals, Trace
from turnout.limits import read_json

Kind = Literal["two_state", "three_state_50", "three_state_75"]
ARTEFACT_SECONDS = 300.0
MOST_BYTES = 1 << 30
FLASH_STATES: dict[str, tuple[int, ...]] = {
    "two_state": (DOWN, UP),
    "three_state_50": (DOWN, EVALUATE, UP),
    "three_state_75": (DOWN, EVALUATE, UP),
}
Interval = tuple[float, float, int]  # start, end, state


def read_recording(path: str | Path, *, states: Kind = "two_state", keep_artefact: bool = False) -> Trace:
    """Read a recording of FLASH or FedScale; the content tells which of the two it is."""
    file = Path(path).expanduser()
    if not file.exists():
        raise DataError(f"There is no recording {path}. Name the JSON file of FLASH or FedScale.")
    content = read_json(file, MOST_BYTES)
    try:
        return _trace(content, states, keep_artefact)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise DataError(
            f"{path} is not a recording of FLASH or FedScale: it needs horizon_s, and devices with {states} or "
            f"unavailable ({type(error).__name__}: {error}). Write a CSV of client,start,end,state yourself instead."
        ) from error


def _trace(content: dict[str, Any], states: Kind, keep_artefact: bool) -> Trace:
    horizon, devices = float(content["horizon_s"]), content["devices"]
    if "unavailable" in devices[0]:
        absences = [device["unavailable"] for device in devices]
        last = max((start + duration for device in absences for start, duration in device), default=horizon)
        end = horizon if keep_artefact else min(float(last), horizon)
        per_device = [between_absences(device, end) for device in absences]
    else:
        kinds, early = dict(enumerate(FLASH_STATES[states])), 0.0 if keep_artefact else ARTEFACT_SECONDS
        events = [[(float(at), kinds[state]) for at, state in device[states]] for device in devices]
        per_device = [between_events(without_early_events(device, early), horizon) for device in events]
    owner = np.repeat(np.arange(len(per_device)), [len(intervals) for intervals in per_device])
    flat = np.array([interval for intervals in per_device for interval in intervals], dtype=np.float64).reshape(-1, 3)
    return Trace.of(Intervals(owner, flat[:, 0], flat[:, 1], flat[:, 2].astype(np.int8)), len(per_device))


def without_early_events(events: list[tuple[float, int]], early_seconds: float) -> list[tuple[float, int]]:
    """Return the events after the first `early_seconds`; the last earlier state applies from the start."""
    early = [state for at, state in events if at <= early_seconds]
    later = [(at, state) for at, state in events if at > early_seconds]
    return [(0.0, early[-1]), *later] if early else later


def between_events(events: list[tuple[float, int]], horizon: float) -> list[Interval]:
    """Return the intervals between changes of state; of events at one time the last counts."""
    last = sorted(dict(events).items())  # by time
    changes = [last[0]] if last else []
    changes += [after for before, after in pairwise(last) if after[1] != before[1]]
    ends = [at for at, _ in changes[1:]] + [horizon]
    return [(at, min(end, horizon), state) for (at, state), end in zip(changes, ends, strict=True) if at < horizon]


def between_absences(absences: list[tuple[float, float]], horizon: float) -> list[Interval]:
    """Return the whole time as intervals of presence and absence; absences that touch or overlap are merged."""
    intervals: list[Interval] = []
    now = 0.0
    for start, duration in sorted(absences):
        until = min(start + duration, horizon)
        if start > now:
            intervals.append((now, float(start), UP))
        if until > max(start, now):
            intervals.append((max(float(start), now), until, DOWN))
        now = max(now, until)
    return [*intervals, (now, horizon, UP)] if now < horizon else intervals
