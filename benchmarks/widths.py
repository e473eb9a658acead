"""What a round of narrow models costs beside plain FedAvg. python -m benchmarks.widths [--json FILE].

The bar: a round of FedAvg whose model is that narrow to begin with, plus a tenth of the whole model's round. So the
bar is on what widths add. The share of the multiplications alone would not be one: FedAvg on a narrow model does not
keep it, without any width rule. W1's steps are so small that calling an operation takes as long as its arithmetic; on
W2, products of samples with samples (`lazy_first_layer`) do not become fewer with the width. The table has both
shares. `random` meets the bar on W2 at rate 0.25 and misses it by 0.04 to 0.09 of a whole round
elsewhere below 1: each client starts from parameters of its own, which are gathered, multiplied apart from those of
others, sent back as a row, and added to where they lie. FedAvg's clients share one start, and their updates are one
sum.

Time is that of the process, since a machine may have other work; rounds of all rates take turns, and medians are
compared. The engine runs all of them in one way. W1 gets a hidden layer of 64 units, since a softmax regression
cannot be cut. Exit code 0 when every bar is met.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.reporting import print_table, write_json
from benchmarks.turnout_rounds import plan_of, task_of
from benchmarks.workloads import WORKLOADS
from turnout.coordinator import State
from turnout.engine import Task, Vectorised
from turnout.models import MLP
from turnout.models.slices import Slices
from turnout.protocols import Population
from turnout.requests import Record
from turnout.streams import Streams
from turnout.study.driver import Run
from turnout.width import Nested, Random, Rolling
from turnout.width.rates import count_of
from turnout.world.simulation import simulate

RULES = {"nested": Nested, "rolling": Rolling, "random": Random}
RATES = (1.0, 0.5, 0.25)
ALLOWANCE = 0.1  # of a whole round, beside that of a narrow model
HOW: Any = {"block": 25, "workers": 1, "threads": 1}  # what the engine would choose depends on the machine's other work


def with_hidden_units(name: str) -> Task:
    """Return the task of a workload, with a hidden layer if its model has none."""
    task: Task = task_of(WORKLOADS[name])
    if name != "W1":
        return task
    module = MLP(hidden=(64,)).build(task.federation.example_shape, 10, torch.Generator().manual_seed(0))
    return Task(federation=task.federation, module=module, loss=task.loss)


def rounds_of(task: Task, name: str, rule: Any) -> Iterator[float]:
    """Yield the processor time of one round after another."""
    population = Population.of(task.federation.sizes)
    slices = Slices.of(task.module, task.federation.train.fetch(np.arange(1)).x[:1])
    plan = replace(plan_of(WORKLOADS[name]), width=rule, slices=slices, layout=task.layout)
    state = State.start(task.layout.flatten(task.module), population)
    run = Run(index=0, task=task, plan=plan, state=state, streams=Streams(0), population=population)
    steps, engine, answer = simulate(plan, population, state, run.streams), Vectorised(**HOW), None
    while True:
        started = time.process_time()
        request: Any = steps.send(answer)
        while not isinstance(request, Record):
            request = steps.send(engine.answer([run.question(request)])[0])
        answer = None
        yield time.process_time() - started


def second_of(rounds: Iterator[float]) -> float:
    """Return the time of the second of two rounds: the first takes back memory that other runs used since."""
    next(rounds)
    return next(rounds)


def narrow_task(task: Task, rate: float) -> tuple[Task, float]:
    """Return a task whose whole model is as narrow as a slice, and the slice's share of the multiplications."""
    slices = Slices.of(task.module, task.federation.train.fetch(np.arange(1)).x[:1])
    sizes = [count_of(rate, size) for size in slices.sizes]
    narrow = Task(federation=task.federation, module=slices.cut(sizes), loss=task.loss)
    return narrow, slices.submodel([np.arange(size) for size in sizes]).step_cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=11, help="rounds of each rate")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    torch.set_num_threads(1)  # also outside the engine, as in a study: threads that wait count as processor time
    figures: dict[str, Any] = {}
    for name in ("W1", "W2"):
        task = with_hidden_units(name)
        narrow = {rate: narrow_task(task, rate) for rate in RATES}
        turns: dict[Any, Iterator[float]] = {("plain", rate): rounds_of(narrow[rate][0], name, None) for rate in RATES}
        turns |= {(rule, rate): rounds_of(task, name, RULES[rule](rates=(rate,))) for rule in RULES for rate in RATES}
        for rounds in turns.values():
            for _ in range(3):  # the record before training, and rounds in which memory is taken
                next(rounds)
        taken = [{key: second_of(rounds) for key, rounds in turns.items()} for _ in range(given.repetitions)]
        shares = {key: float(np.median([each[key] / each["plain", 1.0] for each in taken])) for key in turns}
        rows = []
        for rule, rate in ((rule, rate) for rule in RULES for rate in RATES):
            ratio, bar = shares[rule, rate], shares["plain", rate] + ALLOWANCE
            is_met = ratio <= bar
            rows.append(
                [rule, rate, narrow[rate][1], shares["plain", rate], ratio, bar, "met" if is_met else "NOT MET"]
            )
            figures[f"{name} {rule} {rate:g}"] = {"times_plain": ratio, "bar": bar, "met": is_met}
        plain = float(np.median([each["plain", 1.0] for each in taken]))
        print_table(
            f"{name}: processor time of a round, plain FedAvg {plain:.4g} s",
            ["rule", "rate", "multiplications", "narrow FedAvg", "times plain", "bar", ""],
            rows,
        )
    write_json(given.json, figures)
    return 0 if all(figure["met"] for figure in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
