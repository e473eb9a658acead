"""Run one plan, and read the models of a study."""

from dataclasses import replace

import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.coordinator import Plan, State
from turnout.engine import Engine, Sequential, Task
from turnout.protocols import Population
from turnout.requests import Record
from turnout.streams import Streams
from turnout.study import Result
from turnout.study.driver import Run, drive


def run(
    task: Task,
    plan: Plan,
    *,
    seed: int = 0,
    engine: Engine | None = None,
    state: State | None = None,
    label_counts: Ids | None = None,
) -> tuple[State, list[Record]]:
    """Run one plan, from the start or from a state, and return the last state and the records."""
    held = task.federation.server
    population = Population.of(task.federation.sizes, label_counts, server_size=0 if held is None else len(held))
    if task.federation.public is not None:
        population = replace(population, public_size=len(task.federation.public))
    if task.federation.holdout is not None:
        population = replace(population, holdout_sizes=task.federation.holdout.sizes)
    records: list[Record] = []
    if state is None:
        state = State.start(task.layout.flatten(task.module), population)
    job = Run(index=0, task=task, plan=plan, state=state, streams=Streams(seed), population=population)
    (final,) = drive([job], engine or Sequential(), lambda batch: records.extend(r for _, r in batch))
    return final, records


def models_of(result: Result) -> dict[tuple[str, int], Tensor]:
    """Return the last model of each finished (arm, seed), all its numbers in one vector."""
    return {
        place: torch.cat([tensor.flatten() for tensor in result.state_dict(*place).values()])
        for place in result.loaded.finished
    }
