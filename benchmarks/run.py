"""turnout beside a plain loop and the limit, on W1 to W4: python -m benchmarks.run [--only W1 W2] [--json FILE].

Each contender has a process of its own, as it would be run, and they are timed in turns; the plain loop counts with
the better of one and two operation threads, and so does the hand-batched limit. Exit code 0 when every bar is met, 1
when one is not.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.apart import Apart
from benchmarks.hand_batched import BLOCKS, HandBatched
from benchmarks.plain_loop import PlainLoop
from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Timing, measure
from benchmarks.tuned_threads import TunedThreads
from benchmarks.turnout_rounds import TurnoutWorkload
from benchmarks.workloads import WORKLOADS, Workload

TIMES_PLAIN = {"W1": 15.0, "W2": 3.5, "W3": 1.1, "W4": 1.3}  # at least so many times as fast as the plain loop
OF_LIMIT = {
    "W1": 0.6,
    "W2": 0.6,
    "W3": 0.95,
    "W4": 0.95,
}  # at least this share of the limit; 0.95: no slower, but noise
SAME_WORK = 0.1  # contenders lower the loss equally in the first round, within this share


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One workload, measured."""

    workload: Workload
    timings: dict[str, Timing]
    how: str  # how turnout chose to run it

    def best(self, group: str) -> Timing:
        """Return the quickest timing whose name starts so."""
        return min((t for name, t in self.timings.items() if name.startswith(group)), key=lambda t: t.median)

    @property
    def times_plain(self) -> float:
        """How many times as fast as the plain loop turnout is."""
        return self.best("plain").median / self.best("turnout").median

    @property
    def of_limit(self) -> float:
        """The share of the limit's speed turnout reaches."""
        return self.best("limit").median / self.best("turnout").median

    @property
    def is_met(self) -> bool:
        """Whether both bars are met."""
        return self.times_plain >= TIMES_PLAIN[self.workload.name] and self.of_limit >= OF_LIMIT[self.workload.name]

    def row(self) -> list[object]:
        """Return the table's row."""
        name = self.workload.name
        seconds = [self.best(group).median for group in ("plain", "limit", "turnout")]
        plain = [round(self.times_plain, 2), f">= {TIMES_PLAIN[name]:g}"]
        limit = [f"{self.of_limit:.0%}", f">= {OF_LIMIT[name]:.0%}"]
        verdict = "met" if self.is_met else "NOT MET"
        noise = "" if all(timing.was_quiet for timing in self.timings.values()) else "others were busy"
        return [name, *seconds, *plain, *limit, verdict, self.how, noise]

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        name = self.workload.name
        return {
            "seconds": {name: timing.as_json() for name, timing in self.timings.items()},
            "times_plain": self.times_plain,
            "times_plain_bar": TIMES_PLAIN[name],
            "of_limit": self.of_limit,
            "of_limit_bar": OF_LIMIT[name],
            "met": self.is_met,
            "turnout_ran_as": self.how,
        }


def competitors(workload: Workload) -> list[Apart]:
    """Return everyone who runs this workload, the plain loop first and turnout last."""
    entrants = [Apart(f"plain loop, {n} threads", PlainLoop, workload, n) for n in (1, 2)]
    if workload.name in BLOCKS:
        entrants += [Apart(f"limit: hand-batched, {n} threads", HandBatched, workload, n) for n in (1, 2)]
    else:
        entrants.append(Apart("limit: tuned loop, 2 workers", TunedThreads, workload))
    return [*entrants, Apart("turnout", TurnoutWorkload, workload)]


def check_same_work(workload: Workload, entrants: list[Apart]) -> None:
    """Raise unless everyone's first round lowers the loss as the plain loop's does: a fast wrong round is no round."""
    start = entrants[0].ask("loss")
    gained = {}
    for entrant in entrants:
        entrant.seconds(1)
        gained[entrant.name] = start - entrant.ask("loss")
    fair = gained[entrants[0].name]
    for name, gain in gained.items():
        if abs(gain - fair) > SAME_WORK * abs(fair):
            raise AssertionError(
                f"{name} lowers the loss of {workload.name} by {gain:.4f}, the plain loop by {fair:.4f}."
            )


def run(workload: Workload, repetitions: int) -> Result:
    """Measure one workload."""
    entrants = competitors(workload)
    check_same_work(workload, entrants)
    entrants[-1].ask("settle")
    timings = measure(entrants, repetitions=repetitions)
    how = entrants[-1].ask("how")
    entrants[-1].ask("close")
    for entrant in entrants:
        entrant.close()
    return Result(workload=workload, timings=timings, how=how)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sorted(WORKLOADS), default=sorted(WORKLOADS))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    results = []
    for name in given.only:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        results.append(run(WORKLOADS[name], given.repetitions))
    header = ["", "plain s", "limit s", "turnout s", "times plain", "bar", "of limit", "bar", "", "turnout ran as", ""]
    print_table("Seconds a round, medians", header, [result.row() for result in results])
    write_json(given.json, {result.workload.name: result.as_json() for result in results})
    return 0 if all(result.is_met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
