"""The Ray engine beside the local one, and two workers beside one. python -m benchmarks.ray [--json FILE].

Overhead is what a round takes longer with one worker than in the worker's own way in this process, on W1 to W3. Scaling
is from one worker to two, with one operation thread each: on W3, and on 24 small runs that advance together. Every
contender has a process and a cluster of its own. Exit code 0 when every bar is met, 1 when one is not.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.apart import Apart
from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Timing, measure
from benchmarks.turnout_rounds import TurnoutRounds, plan_of, task_of
from benchmarks.workloads import WORKLOADS
from turnout.engine import Ray, Vectorised

OVERHEAD_BAR = 0.060  # seconds a round, on W1
SCALING_BAR = 1.6  # times as fast with two workers as with one
RUNS = 24
CASES = {"W1": ("W1", 1), "W2": ("W2", 1), "W3": ("W3", 1), f"{RUNS} runs": ("W1", RUNS)}


class LocalRounds(TurnoutRounds):
    """Rounds in this process, in the way of a worker: fixed, with one operation thread."""

    def __init__(self, name: str, runs: int) -> None:
        work = WORKLOADS[name]
        super().__init__(task_of(work), plan_of(work), range(runs), Vectorised(deterministic=True))


class RayRounds(TurnoutRounds):
    """Rounds on a cluster of this machine with so many workers, all of them ready."""

    def __init__(self, name: str, runs: int, workers: int) -> None:
        work = WORKLOADS[name]
        super().__init__(task_of(work), plan_of(work), range(runs), Ray(workers=workers))
        cluster, _ = self.engine.opened
        while sum(worker.is_ready for worker in cluster.workers) < workers:
            self.round()

    def close(self) -> None:
        """Close the journal and end the cluster."""
        super().close()
        self.engine.close()


def run(case: str, repetitions: int) -> dict[str, Timing]:
    """Return the seconds a round of each contender."""
    entrants = [Apart("local", LocalRounds, *CASES[case])]
    entrants += [Apart(f"ray {workers}", RayRounds, *CASES[case], workers) for workers in (1, 2)]
    timings = measure(entrants, repetitions=repetitions)
    for entrant in entrants:
        entrant.ask("close")
        entrant.close()
    return timings


def figures_of(case: str, timings: dict[str, Timing]) -> dict[str, object]:
    """Return overhead and scaling, and whether the case's bar is met."""
    local, one, two = (timings[name].median for name in ("local", "ray 1", "ray 2"))
    overhead, scaling = one - local, one / two
    bars = {"W1": overhead < OVERHEAD_BAR, "W3": scaling >= SCALING_BAR, f"{RUNS} runs": scaling >= SCALING_BAR}
    return {
        "seconds": {name: timing.as_json() for name, timing in timings.items()},
        "overhead_seconds": overhead,
        "scaling": scaling,
        "met": bars.get(case, True),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    figures, rows = {}, []
    for case in given.only:
        print(f"measuring {case} ...", file=sys.stderr, flush=True)
        timings = run(case, given.repetitions)
        found = figures[case] = figures_of(case, timings)
        bar = {"W1": f"overhead < {OVERHEAD_BAR:g} s", "W2": ""}.get(case, f"scaling >= {SCALING_BAR:g}")
        noise = "" if all(timing.was_quiet for timing in timings.values()) else "others were busy"
        seconds = [timing.median for timing in timings.values()]
        rows.append([case, *seconds, found["overhead_seconds"], found["scaling"], bar, _verdict(bar, found), noise])
    header = ["", "local s", "1 worker s", "2 workers s", "overhead s", "scaling", "bar", "", ""]
    print_table("Seconds a round, medians", header, rows)
    write_json(given.json, figures)
    return 0 if all(found["met"] for found in figures.values()) else 1


def _verdict(bar: str, found: dict[str, object]) -> str:
    if not bar:
        return ""
    return "met" if found["met"] else "NOT MET"


if __name__ == "__main__":
    sys.exit(main())
