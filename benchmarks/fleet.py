"""Who is up, for a million clients: seconds a round. python -m benchmarks.fleet [--json FILE].

Every client has a trace of its own, of 24 visits over six days. Bar: one step of `up` takes less than a second. The
other processes are timed beside it. Exit code 0 when the bar is met, 1 when it is not.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Contender, measure
from turnout.fleet import Bernoulli, Cyclic, Diurnal, HalfAndHalf, Markov, Recorded, Resampled, Trace
from turnout.fleet.traces import UP, Intervals
from turnout.protocols import Availability, Population, View
from turnout.streams import Streams

CLIENTS, VISITS, LENGTH_SECONDS = 1_000_000, 24, 518_400.0
BAR_SECONDS = 1.0


def trace(clients: int, visits: int) -> Trace:
    """Return a trace in which each client has so many visits, at times of its own."""
    rng = np.random.default_rng(0)
    slot = LENGTH_SECONDS / visits
    starts = (np.arange(visits) + rng.uniform(0.0, 0.5, (clients, visits))) * slot
    ends = starts + rng.uniform(0.1, 0.5, (clients, visits)) * slot
    owner, states = np.repeat(np.arange(clients), visits), np.full(clients * visits, UP, dtype=np.int8)
    return Trace.of(Intervals(owner, starts.ravel(), ends.ravel(), states), clients)


def stepping(rule: Availability, view: View) -> Callable[[], object]:
    """Return a function that asks who is up in one round after another."""
    here = [view]

    def step() -> object:
        here[0] = replace(here[0], round=here[0].round + 1)
        return rule.up(here[0])

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    population = Population.of(np.ones(given.clients, dtype=np.int64))
    view = View(round=100, rounds=10**6, streams=Streams(0), population=population, model=torch.zeros(1))
    rules: dict[str, Availability] = {
        "recorded": Recorded(trace=trace(given.clients, VISITS), round_seconds=600.0),
        "bernoulli": Bernoulli(prob=0.3),
        "diurnal": Diurnal(zones=24),
        "markov": Markov(join=0.1, leave=0.3),
        "cyclic": Cyclic(groups=24),
        "half-and-half": HalfAndHalf(),
        "resampled": Resampled(size=given.clients // 10),
    }
    contenders = [Contender(name, stepping(rule, view)) for name, rule in rules.items()]
    timings = measure(contenders, repetitions=given.repetitions)
    rows = [[name, round(timing.median, 4), f"< {BAR_SECONDS:g}"] for name, timing in timings.items()]
    print_table(f"who of {given.clients:,} clients is up: seconds a round", ["process", "seconds", "bar"], rows)
    write_json(given.json, {name: timing.as_json() for name, timing in timings.items()})
    return 0 if timings["recorded"].median < BAR_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
