"""Recorded availability: a trace says when each client is available.

Intuition: replay the availability of real devices.

    i ∈ A_t  ⇔  device d(i) is up at s_t          s_t: the clock's seconds at the start of round t,
                                                  or (t − 1) · round_seconds where there is no clock

Reduces to: always available for a repeated trace in which every client is up from start to end.
Reference: Yang et al. (FLASH). WWW 2021. arXiv:2006.06983; Lai et al. (FedScale). ICML 2022. arXiv:2105.11367.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from turnout.array_types import Ids
from turnout.errors import DataError, Problem
from turnout.fleet.trace_files import read_trace
from turnout.fleet.traces import UP, Trace
from turnout.protocols import Population, View
from turnout.settings import Positive, rule


@rule("fleet.availability")
class Recorded:
    """Availability from a trace."""

    trace: str | Path | Trace  # file of the trace (see `turnout trace`), or a Trace made in Python
    # duration of a round in the trace in seconds, greater than 0; none uses the simulated time of fleet.clock
    round_seconds: Positive | None = None
    repeat: bool = True  # start again at the end of the trace (true), or have no available client after it (false)
    # assignment of devices: "by-id" makes client i device i, "drawn" draws a device for each client once per run
    assign: Literal["by-id", "drawn"] = "by-id"

    @property
    def needs_clock(self) -> bool:
        """Whether the rule depends on simulated time."""
        return self.round_seconds is None

    @property
    def length_seconds(self) -> float:
        """Length of the trace."""
        return self._loaded().length_seconds

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the trace cannot be read, or why it has more clients than the federation."""
        number = population.num_clients
        try:
            trace = self._loaded()
        except DataError as error:
            yield Problem(
                f"{error} Set fleet.availability.trace to a trace that can be read.", "fleet.availability.trace"
            )
            return
        if self.assign == "by-id" and trace.num_clients > number:
            yield Problem(
                f"Recorded needs a trace of these {number} clients; {self._excess_client(trace, number)} "
                'Set fleet.availability.assign to "drawn", use more clients, or cut the trace.',
                "fleet.availability.assign",
            )

    def up(self, view: View) -> Ids:
        """Return the clients whose device is up now; a pure function of the time."""
        everyone, trace = view.population.everyone, self._loaded()
        seconds = view.sim_seconds if self.round_seconds is None else (view.round - 1) * self.round_seconds
        if self.repeat:
            seconds = math.fmod(seconds, trace.length_seconds)
        is_up = trace.states_at(seconds) == UP
        if self.assign == "drawn":
            devices = view.streams.uniforms("device", 0, everyone)[:, 0] * trace.num_clients
            return np.asarray(everyone[is_up[devices.astype(np.int64)]])
        in_trace = everyone[: np.searchsorted(everyone, trace.num_clients)]  # other clients are never available
        return np.asarray(in_trace[is_up[in_trace]])

    def _excess_client(self, trace: Trace, number: int) -> str:
        """Return a message about a client of the trace that the federation does not have, with its line if known."""
        if not isinstance(self.trace, Trace):
            try:
                read_trace(self.trace, number)
            except DataError as error:
                return str(error)
        return f"the trace has client {trace.num_clients - 1}."

    def _loaded(self) -> Trace:
        return self.trace if isinstance(self.trace, Trace) else read_trace(self.trace)
