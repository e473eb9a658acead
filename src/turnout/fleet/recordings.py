"""Published recordings of real phones, as traces: FLASH's and FedScale's, as re-packed into one JSON file each.

FLASH: `{"horizon_s": …, "devices": [{"two_state": [[seconds, state], …], "three_state_50": …, …}, …]}`; a state holds
until the next event. In two states 1 is charging: up. In three, 2 is charging: up, and 1 is enough battery: evaluate.
FedScale: `{"horizon_s": …, "devices": [{"unavailable": [[start, duration], …]}, …]}`, each stretched to the horizon.

Both have an artefact, which is undone unless it is to be kept. FLASH's re-packers made every phone available for the
first 300 seconds: each phone has from the start the state it has after them. Nothing is shifted, so six days stay six
days and a trace that is repeated keeps its time of day. FedScale's records end before the horizon that is given for
them, and all phones would be up from there on: the trace ends with the last absence of all phones.
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
Visit = tuple[float, float, int]  # start, end, state


def read_recording(path: str | Path, *, states: Kind = "two_state", keep_artefact: bool = False) -> Trace:
    """Read a recording of FLASH or FedScale; which of the two is told by what it holds."""
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
        last = max((start + duration for found in absences for start, duration in found), default=horizon)
        end = horizon if keep_artefact else min(float(last), horizon)
        per_device = [between_absences(found, end) for found in absences]
    else:
        kinds, early = dict(enumerate(FLASH_STATES[states])), 0.0 if keep_artefact else ARTEFACT_SECONDS
        events = [[(float(at), kinds[state]) for at, state in device[states]] for device in devices]
        per_device = [between_events(settled(found, early), horizon) for found in events]
    owner = np.repeat(np.arange(len(per_device)), [len(visits) for visits in per_device])
    flat = np.array([visit for visits in per_device for visit in visits], dtype=np.float64).reshape(-1, 3)
    return Trace.of(Intervals(owner, flat[:, 0], flat[:, 1], flat[:, 2].astype(np.int8)), len(per_device))


def settled(events: list[tuple[float, int]], early_seconds: float) -> list[tuple[float, int]]:
    """Return the events without those of the first seconds; the state they end in holds from the start."""
    early = [state for at, state in events if at <= early_seconds]
    later = [(at, state) for at, state in events if at > early_seconds]
    return [(0.0, early[-1]), *later] if early else later


def between_events(events: list[tuple[float, int]], horizon: float) -> list[Visit]:
    """Return what lies between changes of state: of events at one time the last counts; equal neighbours are one."""
    last = sorted(dict(events).items())  # by time
    changes = [last[0]] if last else []
    changes += [after for before, after in pairwise(last) if after[1] != before[1]]
    ends = [at for at, _ in changes[1:]] + [horizon]
    return [(at, min(end, horizon), state) for (at, state), end in zip(changes, ends, strict=True) if at < horizon]


def between_absences(absences: list[tuple[float, float]], horizon: float) -> list[Visit]:
    """Return the whole time as visits and absences; absences that touch or overlap are one."""
    visits: list[Visit] = []
    here = 0.0
    for start, duration in sorted(absences):
        until = min(start + duration, horizon)
        if start > here:
            visits.append((here, float(start), UP))
        if until > max(start, here):
            visits.append((max(float(start), here), until, DOWN))
        here = max(here, until)
    return [*visits, (here, horizon, UP)] if here < horizon else visits
