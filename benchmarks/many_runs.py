"""Sixteen runs together beside one: W1 with 5 clients a round. python -m benchmarks.many_runs [--json FILE].

The arms and seeds of a study advance in step and their rows are stacked, so sixteen should take less than five times
as long as one. Exit code 0 when the bar is met, 1 when it is not.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Contender, measure
from benchmarks.turnout_rounds import TurnoutRounds, plan_of, task_of
from benchmarks.workloads import WORKLOADS

RUNS, COHORT, BAR = 16, 5, 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    work = WORKLOADS["W1"]
    task, plan = task_of(work), plan_of(work, COHORT)
    entrants = {"one": TurnoutRounds(task, plan), "many": TurnoutRounds(task, plan, range(RUNS))}
    for entrant in entrants.values():
        entrant.settle()
    timings = measure([Contender(name, e.round) for name, e in entrants.items()], repetitions=given.repetitions)
    for entrant in entrants.values():
        entrant.close()
    one, many = timings["one"].median, timings["many"].median
    met = many < BAR * one
    header = ["runs", "seconds a round", "times one", "bar", ""]
    rows = [["1", one, 1.0, "", ""], [str(RUNS), many, round(many / one, 2), f"< {BAR:g}", "met" if met else "NOT MET"]]
    print_table(f"W1 with {COHORT} clients a round, {RUNS} runs together", header, rows)
    seconds = {name: timing.as_json() for name, timing in timings.items()}
    write_json(given.json, {"runs": RUNS, "seconds": seconds, "times_one": many / one, "bar": BAR, "met": met})
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
