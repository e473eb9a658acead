"""Clients that are not asked cost nothing: a million and 15 million beside ten thousand. python -m benchmarks.million.

SYNTHETIC(1, 1) with clients made when they are asked, 100 asked a round. Each part runs in a process of its own, for
its peak memory. Bars are in PARTS; processor seconds are shown beside wall time, which others on the machine make
longer. Exit code 0 when all are met, 1 when one is not.
"""

import argparse
import resource
import statistics
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.models import build
from benchmarks.quiet import own_seconds
from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Contender, measure
from benchmarks.turnout_rounds import TurnoutRounds, plan_of
from benchmarks.workloads import WORKLOADS
from turnout import losses
from turnout.data.synthetic_on_demand import SyntheticOnDemand
from turnout.engine import Task
from turnout.streams import Streams

FEW, ASKED = 10_000, 100
ROUNDS = 15  # whose processor seconds are counted


@dataclass(frozen=True, slots=True)
class Part:
    """How many clients there are, and what they may cost."""

    clients: int
    times_few: float  # round time, times that of FEW clients
    start_seconds: float
    memory_mib: float


PARTS = (Part(1_000_000, 2.0, 60.0, 4096.0), Part(15_000_000, 1.2, 5.0, 2048.0))


def entrant(num_clients: int) -> TurnoutRounds:
    """Return a run on so many clients of W1's size, ready for its first round."""
    work = replace(WORKLOADS["W1"], num_clients=num_clients)
    federation = SyntheticOnDemand(clients=num_clients, samples=work.num_examples).build(Streams(0))
    return TurnoutRounds(
        Task(federation=federation, module=build(work), loss=losses.cross_entropy), plan_of(work, ASKED)
    )


def measured(part: Part, repetitions: int) -> dict[str, Any]:
    """Return what so many clients cost, in wall and processor seconds."""
    began, used = time.perf_counter(), own_seconds()
    many = entrant(part.clients)
    many.round()
    start_seconds, start_cpu_seconds = time.perf_counter() - began, own_seconds() - used
    few = entrant(FEW)
    for each in (many, few):
        each.settle()
    timings = measure([Contender("few", few.round), Contender("many", many.round)], repetitions=repetitions)
    cpu = {
        name: statistics.median(_cpu_seconds(each) for _ in range(ROUNDS))
        for name, each in (("few", few), ("many", many))
    }
    few.close()
    many.close()
    return {
        "times_few": timings["many"].median / timings["few"].median,
        "times_few_cpu": cpu["many"] / cpu["few"],
        "start_seconds": start_seconds,
        "start_cpu_seconds": start_cpu_seconds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "seconds": {name: timing.as_json() for name, timing in timings.items()},
    }


def _cpu_seconds(entrant: TurnoutRounds) -> float:
    used = own_seconds()
    entrant.round()
    return own_seconds() - used


def rows_of(part: Part, found: dict[str, Any]) -> list[list[object]]:
    """Return the table's rows: each figure with its bar."""
    rows: list[list[object]] = []
    for what, value, bar in (
        ("round time, times that of 10,000", found["times_few"], part.times_few),
        ("start-up seconds: data and the first round", found["start_seconds"], part.start_seconds),
        ("peak memory, MiB", found["peak_memory_mib"], part.memory_mib),
    ):
        rows.append([f"{part.clients:,}", what, round(value, 2), f"< {bar:g}", "met" if value < bar else "NOT MET"])
    cpu = f"processor: {found['times_few_cpu']:.2f} times, start-up {found['start_cpu_seconds']:.2f} s"
    return [*rows, [f"{part.clients:,}", cpu, "", "", ""]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    rows: list[list[object]] = []
    figures: dict[str, Any] = {}
    for part in PARTS:
        with get_context("spawn").Pool(1) as pool:
            found = pool.apply(measured, (part, given.repetitions))
        mine = rows_of(part, found)
        bars = {"times_few": part.times_few, "start_seconds": part.start_seconds, "peak_memory_mib": part.memory_mib}
        figures[f"{part.clients}"] = found | {"bars": bars, "met": not any(row[-1] == "NOT MET" for row in mine)}
        rows += mine
    print_table(f"{ASKED} asked a round", ["clients", "", "value", "bar", ""], rows)
    write_json(given.json, figures)
    return 0 if all(found["met"] for found in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
