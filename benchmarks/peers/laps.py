"""What every peer's script shares: its arguments, a stopwatch for rounds, and the result file."""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from benchmarks.quiet import wait_until_quiet
from benchmarks.workloads import EVERY_WORKLOAD, Workload


def cut_down(workload: Workload, clients: int) -> Workload:
    """Return the workload with so many clients, half of which take part where not all do."""
    cohort = None if workload.cohort_size is None else max(1, clients // 2)
    return replace(workload, num_clients=clients, cohort_size=cohort)


class Laps:
    """Times each round of a peer's own loop: call `start` before the first and `stop` after every one."""

    def __init__(self, description: str | None) -> None:
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("workload", choices=sorted(EVERY_WORKLOAD))
        parser.add_argument("--rounds", type=int, default=6, help="rounds to run, the first of them a warm-up")
        parser.add_argument("--threads", type=int, default=1, help="operation threads")
        parser.add_argument("--out", type=Path, help="write the result to this file; left out, print it")
        parser.add_argument("--clients", type=int, help="cut the workload down to so many clients, to try it out")
        given = parser.parse_args()
        self.workload: Workload = EVERY_WORKLOAD[given.workload]
        if given.clients is not None:
            self.workload = cut_down(self.workload, given.clients)
        self.rounds: int = given.rounds
        self.threads: int = given.threads
        self.out: Path | None = given.out
        self.seconds: list[float] = []
        self.began = 0.0

    def start(self) -> None:
        """Begin a round, once the machine is quiet."""
        wait_until_quiet(longest=5.0)
        self.began = time.perf_counter()

    def stop(self, *, and_start: bool = False) -> None:
        """End a round; `and_start` begins the next where the peer has no hook of its own for that."""
        self.seconds.append(time.perf_counter() - self.began)
        if and_start:
            self.start()

    def finish(self, loss: float) -> None:
        """Write what was measured, and the loss after so many rounds as a sign that the work was done."""
        result = json.dumps({"seconds": self.seconds[: self.rounds], "loss": loss})
        if self.out is None:
            print(result)
        else:
            self.out.write_text(result)
