"""turnout's side of every comparison: whole rounds, through the public pieces, with the journal on disk.

A round is everything between two records: selection, drawing batches, training, aggregating, the server's step, and
the journal's transaction. Several runs (seeds) may advance together; the engine then answers them in one call.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.models import build, mean_loss
from benchmarks.quiet import wait_until_quiet
from benchmarks.workloads import Workload, samples
from turnout import losses
from turnout.aggregation import FedAvg
from turnout.coordinator import Cadence, Plan, State
from turnout.data.federation import from_clients
from turnout.engine import Engine, Task, Vectorised
from turnout.engine.vectorised.tuning import describe
from turnout.journal import Journal, RunInfo
from turnout.local import SGD
from turnout.protocols import Population
from turnout.requests import Record
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.world.simulation import simulate

FOREVER = 10**9  # rounds, and rounds between measurements: only training is timed


class TurnoutRounds:
    """One or several runs of a plan on a task, advanced one round at a time."""

    def __init__(self, task: Task, plan: Plan, seeds: Sequence[int] = (0,), engine: Engine | None = None) -> None:
        self.task = task
        self.folder = tempfile.TemporaryDirectory(prefix="turnout-bench-")
        os.environ["TURNOUT_CACHE"] = f"{self.folder.name}/cache"  # nothing is remembered
        self.engine = engine or Vectorised()
        self.engine.watch.rounds_ahead = plan.rounds  # enough for a search of the fastest way
        self.engine.watch.group += 1  # rounds of another study on this engine have the same numbers
        self.journal = Journal.create(Path(self.folder.name) / "journal", study="benchmark", config={}, facts={})
        infos = [RunInfo(arm="FedAvg", seed=seed, rounds=plan.rounds, config={}) for seed in seeds]
        self.ids = [self.journal.begin(info) for info in infos]
        population = Population.of(task.federation.sizes)
        if task.federation.holdout is not None:
            population = replace(population, holdout_sizes=task.federation.holdout.sizes)
        start = task.layout.flatten(task.module)
        buffers = task.layout.flatten_buffers(task.module) if task.layout.buffers else None
        self.states = [State.start(start.clone(), population, buffers) for _ in seeds]
        self.steps = [
            simulate(plan, population, state, Streams(seed)) for state, seed in zip(self.states, seeds, strict=True)
        ]
        self.round()  # the record of round 0, before training

    def round(self) -> None:
        """Advance every run to its next record and write the records."""
        torch.set_num_threads(os.cpu_count() or 1)
        waiting = [next(steps) for steps in self.steps]
        while not isinstance(waiting[0], Record):
            answers = self.engine.answer([(self.task, request) for request in waiting])
            waiting = [steps.send(answer) for steps, answer in zip(self.steps, answers, strict=True)]
        self.states = [record.state for record in waiting]
        self.journal.write(list(zip(self.ids, waiting, strict=True)))

    def settle(self) -> None:
        """Run rounds until the engine has settled on how to run."""
        wait_until_quiet()
        self.round()
        while isinstance(self.engine, Vectorised) and self.engine.is_searching:
            self.round()

    def how(self) -> str:
        """Return how the engine chose to run the last rounds."""
        return describe(self.engine.tuning())

    def close(self) -> None:
        """Close the journal and remove its folder."""
        self.journal.close()
        self.folder.cleanup()


def plan_of(workload: Workload, cohort_size: int | None = None) -> Plan:
    """Return the workload as a plan: FedAvg, plain local SGD, nothing measured."""
    return Plan(
        local=SGD(lr=workload.lr, batch_size=workload.batch_size, epochs=workload.epochs),
        rounds=FOREVER,
        selection=Uniform(cohort_size=cohort_size),
        aggregation=FedAvg(weighting="ratio"),
        evaluate=Cadence(every=FOREVER),
    )


def task_of(workload: Workload) -> Task:
    """Return the workload's clients, model and loss."""
    x, y = map(torch.from_numpy, samples(workload))
    federation = from_clients(list(zip(x, y, strict=True)), num_classes=workload.num_classes)
    return Task(federation=federation, module=build(workload), loss=losses.cross_entropy)


class TurnoutWorkload(TurnoutRounds):
    """One run of a workload."""

    def __init__(self, workload: Workload, engine: Engine | None = None) -> None:
        self.workload = workload
        super().__init__(task_of(workload), plan_of(workload, workload.cohort_size), engine=engine)

    def loss(self) -> float:
        """Return the mean training loss of the averaged model."""
        model = self.task.layout.load(build(self.workload), self.states[0].model)
        return mean_loss(model, *map(torch.from_numpy, samples(self.workload)))
