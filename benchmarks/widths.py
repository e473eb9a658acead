"""What a round of narrow models costs beside plain FedAvg. python -m benchmarks.widths [--json FILE].

The bar: the share of the whole model's multiplications, plus a tenth. Time is that of the process, since a machine may
have other work; rounds of all rates take turns, and medians are compared. W1 gets a hidden layer of 64 units, since a
softmax regression cannot be cut. Exit code 0 when every bar is met.
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
ALLOWANCE = 0.1  # of a whole round, beside the share of the multiplications


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
    steps, engine, answer = simulate(plan, population, state, run.streams), Vectorised(), None
    while True:
        started = time.process_time()
        request: Any = steps.send(answer)
        while not isinstance(request, Record):
            request = steps.send(engine.answer([run.question(request)])[0])
        answer = None
        yield time.process_time() - started


def share_of(task: Task, rate: float) -> float:
    """Return a slice's share of the whole model's multiplications."""
    slices = Slices.of(task.module, task.federation.train.fetch(np.arange(1)).x[:1])
    return slices.submodel([np.arange(count_of(rate, size)) for size in slices.sizes]).step_cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=11, help="rounds of each rate")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in ("W1", "W2"):
        task = with_hidden_units(name)
        turns: dict[Any, Iterator[float]] = {"plain": rounds_of(task, name, None)}
        turns |= {(rule, rate): rounds_of(task, name, RULES[rule](rates=(rate,))) for rule in RULES for rate in RATES}
        for rounds in turns.values():
            for _ in range(3):  # the record before training, and rounds in which the engine measures how to run
                next(rounds)
        taken = [{key: next(rounds) for key, rounds in turns.items()} for _ in range(given.repetitions)]
        rows = []
        for rule, rate in (key for key in turns if key != "plain"):
            ratio = float(np.median([each[rule, rate] / each["plain"] for each in taken]))
            bar = share_of(task, rate) + ALLOWANCE
            rows.append([rule, rate, share_of(task, rate), ratio, bar, "met" if ratio <= bar else "NOT MET"])
            figures[f"{name} {rule} {rate:g}"] = {"times_plain": ratio, "bar": bar, "met": ratio <= bar}
        plain = float(np.median([each["plain"] for each in taken]))
        print_table(
            f"{name}: processor time of a round, plain FedAvg {plain:.4g} s",
            ["rule", "rate", "multiplications", "times plain", "bar", ""],
            rows,
        )
    write_json(given.json, figures)
    return 0 if all(figure["met"] for figure in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
