"""Recorded availability: clients are up when a trace says so.

Intuition: replay what real devices did.

    i ∈ A_t  ⇔  device d(i) is up at s_t          s_t: the clock's seconds at the start of round t,
                                                  or (t − 1) · round_seconds where there is no clock

Reduces to: always up for a trace in which everyone is up from beginning to end, repeated.
Reference: Yang et al. (FLASH). WWW 2021. arXiv:2006.06983; Lai et al. (FedScale). ICML 2022. arXiv:2105.11367.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from turnout.array_types import Ids
from turnout.errors import DataError
from turnout.fleet.trace_files import read_trace
from turnout.fleet.traces import UP, Trace
from turnout.protocols import Population, View
from turnout.settings import Positive, rule


@rule("fleet.availability")
class Recorded:
    """Up as recorded."""

    trace: str | Path | Trace  # a file (see `turnout trace`), or a trace made in Python
    round_seconds: Positive | None = None  # how long a round lasts in the trace; left out, the fleet's clock says
    repeat: bool = True  # start again at the end of the trace; false: nobody is up after it
    assign: Literal["by-id", "drawn"] = "by-id"  # client i is device i; or each client draws a device once per run

    @property
    def needs_clock(self) -> bool:
        """Whether the rule looks at simulated time."""
        return self.round_seconds is None

    @property
    def length_seconds(self) -> float:
        """How long the recording is."""
        return self._loaded().length_seconds

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield what is wrong with the trace, with its line, or why it is not one of these clients."""
        number = population.num_clients
        try:
            trace = self._loaded()
        except DataError as error:
            yield f"{error} Set fleet.availability.trace to a trace that can be read."
            return
        if self.assign == "by-id" and trace.num_clients > number:
            yield (
                f"Recorded needs a trace of these {number} clients; {self._stranger(trace, number)} "
                'Set fleet.availability.assign to "drawn", use more clients, or cut the trace.'
            )

    def up(self, view: View) -> Ids:
        """Return the clients whose device is up now; a pure function of the time, however often it is called."""
        everyone, trace = view.population.everyone, self._loaded()
        seconds = view.sim_seconds if self.round_seconds is None else (view.round - 1) * self.round_seconds
        if self.repeat:
            seconds = math.fmod(seconds, trace.length_seconds)
        is_up = trace.states_at(seconds) == UP
        if self.assign == "drawn":
            drawn = view.streams.uniforms("device", 0, everyone)[:, 0] * trace.num_clients
            return np.asarray(everyone[is_up[drawn.astype(np.int64)]])
        known = everyone[: np.searchsorted(everyone, trace.num_clients)]  # others have no interval: never up
        return np.asarray(known[is_up[known]])

    def _stranger(self, trace: Trace, number: int) -> str:
        """Return who is in the trace and is none of so many clients, with the line where there is one."""
        if not isinstance(self.trace, Trace):
            try:
                read_trace(self.trace, number)
            except DataError as error:
                return str(error)
        return f"the trace has client {trace.num_clients - 1}."

    def _loaded(self) -> Trace:
        return self.trace if isinstance(self.trace, Trace) else read_trace(self.trace)
