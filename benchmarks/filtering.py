"""FilFL's greedy look beside re-averaging the set at every step. python -m benchmarks.filtering [--json FILE].

100 clients, the 784-200-200-10 network, 500 filtering samples. The plain way averages the members anew for each of
the four models of a step and measures them one by one. Same decisions; exit code 0 when the bar is met.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.models import build
from benchmarks.reporting import print_table, write_json
from benchmarks.timing import Contender, measure
from benchmarks.workloads import WORKLOADS
from turnout import losses
from turnout.data.federation import Samples, from_clients
from turnout.engine import Task, Vectorised
from turnout.filtering import Greedy
from turnout.filtering.greedy import accepts
from turnout.protocols import Population, View
from turnout.requests import Score, Trained
from turnout.streams import Streams

CLIENTS, SAMPLES, BAR = 100, 500, 4.0


class Look:
    """One look of the filter, with the clients' training already done."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        work = WORKLOADS["W2"]
        module = build(work)
        x, y = (
            torch.tensor(rng.normal(size=(SAMPLES, 784)), dtype=torch.float32),
            torch.tensor(rng.integers(0, 10, SAMPLES)),
        )
        one = (x[:1], y[:1])
        federation = from_clients([one] * CLIENTS, server=Samples(x, y), num_classes=10)
        self.task = Task(federation=federation, module=module, loss=losses.cross_entropy)
        self.model = self.task.layout.flatten(module)
        noise = np.random.default_rng(1).normal(size=(CLIENTS, self.model.numel())).astype(np.float32)
        self.rows = torch.from_numpy(noise) * 0.02
        self.engine = Vectorised()
        self.module = module
        self.decided: dict[str, list[int]] = {}

    def train(self, clients: np.ndarray, uploads: bool = True) -> str:
        """Stand in for a request."""
        return "train"

    def score(self, models: torch.Tensor, on: str = "server", client: int | None = None) -> Score:
        """Ask for models' losses."""
        return Score(round=1, models=models, buffers=None, on=on, client=client)

    def view(self) -> View:
        """Return what the filter sees."""
        ones = np.ones(CLIENTS, dtype=np.int64)
        return View(round=1, rounds=1, streams=Streams(0), population=Population.of(ones), model=self.model)

    def running_sums(self) -> None:
        """The filter as it is."""
        steps, answer = Greedy().keep(np.arange(CLIENTS), self.view(), self), None  # type: ignore[arg-type]
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                self.decided["running sums"] = stop.value.clients.tolist()
                return
            if request == "train":  # type: ignore[comparison-overlap]
                ones = np.ones(CLIENTS, dtype=np.int64)
                answer = Trained(
                    clients=np.arange(CLIENTS), steps=ones, loss=ones * 0.0, finite=ones > 0, delta=self.rows
                )
            else:
                answer = self.engine.answer([(self.task, request)])[0]  # type: ignore[list-item]

    def averaged_anew(self) -> None:
        """The same decisions, the plain way."""
        order = self.view().streams.generator("filter-order", 1).permutation(np.arange(CLIENTS))
        inside: list[int] = []
        outside = order.tolist()
        for client in order.tolist():
            rest = [c for c in outside if c != client]
            gain_in = self._reward([*inside, client]) - self._reward(inside)
            gain_out = self._reward(rest) - self._reward(outside)
            if accepts(gain_in, gain_out, "deterministic", 0.0):
                inside.append(client)
            else:
                outside = rest
        self.decided["averaged anew"] = sorted(inside)

    def _reward(self, members: list[int]) -> float:
        if not members:
            return 0.0
        model = self.model - self.rows[members].mean(0)
        self.task.layout.load(self.module, model)
        held = self.task.federation.server
        assert held is not None
        with torch.no_grad():
            return 10.0 - float(self.task.loss(self.module(held.x), held.y).mean())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    look = Look()
    contenders = [Contender("running sums", look.running_sums), Contender("averaged anew", look.averaged_anew)]
    timings = measure(contenders, repetitions=given.repetitions)
    ratio = timings["averaged anew"].median / timings["running sums"].median
    same = look.decided["running sums"] == look.decided["averaged anew"]
    met = ratio >= BAR and same
    rows = [[name, timing.median] for name, timing in timings.items()]
    kept = len(look.decided["running sums"])
    print_table(
        f"A look at {CLIENTS} clients: {ratio:.1f} times as fast, bar {BAR:g}; kept {kept}, same: {same}",
        ["way", "seconds"],
        rows,
    )
    seconds = {name: timing.as_json() for name, timing in timings.items()}
    write_json(given.json, {"seconds": seconds, "times_as_fast": ratio, "bar": BAR, "same_decisions": same, "met": met})
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
