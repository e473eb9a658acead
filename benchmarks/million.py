"""Clients that are not asked cost nothing: a million beside ten thousand. python -m benchmarks.million [--json FILE].

SYNTHETIC(1, 1) with clients made when they are asked, 100 asked a round. Bars: a round takes less than twice as long,
start-up less than a minute, memory less than 4 GiB. Exit code 0 when all are met, 1 when one is not.
"""

import argparse
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.models import build
from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Contender, measure
from benchmarks.turnout_rounds import TurnoutRounds, plan_of
from benchmarks.workloads import WORKLOADS
from turnout import losses
from turnout.data.synthetic_on_demand import SyntheticOnDemand
from turnout.engine import Task
from turnout.streams import Streams

MANY, FEW, ASKED = 1_000_000, 10_000, 100
TIMES_BAR, START_BAR_SECONDS, MEMORY_BAR_MIB = 2.0, 60.0, 4096.0


def entrant(num_clients: int) -> TurnoutRounds:
    """Return a run on so many clients of W1's size, ready for its first round."""
    work = replace(WORKLOADS["W1"], num_clients=num_clients)
    federation = SyntheticOnDemand(clients=num_clients, samples=work.num_examples).build(Streams(0))
    return TurnoutRounds(
        Task(federation=federation, module=build(work), loss=losses.cross_entropy), plan_of(work, ASKED)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    began = time.perf_counter()
    many = entrant(MANY)
    many.round()
    start_seconds = time.perf_counter() - began  # federation, first measurement, first round and its tuning
    few = entrant(FEW)
    contenders = [Contender("few", few.round), Contender("many", many.round)]
    timings = measure(contenders, repetitions=given.repetitions)
    times = timings["many"].median / timings["few"].median
    memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = []
    for what, value, bar in (
        ("round time, times that of 10,000", times, TIMES_BAR),
        ("start-up seconds", start_seconds, START_BAR_SECONDS),
        ("peak memory, MiB", memory_mib, MEMORY_BAR_MIB),
    ):
        rows.append([what, round(value, 2), f"< {bar:g}", "met" if value < bar else "NOT MET"])
    few.close()
    many.close()
    print_table(f"{MANY:,} clients, {ASKED} asked a round", ["", "value", "bar", ""], rows)
    figures = {"times_few": times, "start_seconds": start_seconds, "peak_memory_mib": memory_mib}
    write_json(given.json, figures | {"seconds": {name: timing.as_json() for name, timing in timings.items()}})
    return 0 if all(row[-1] == "met" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
