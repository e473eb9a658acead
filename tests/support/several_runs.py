"""Runs with several models on quadratics and small networks."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.support.tasks import train_of
from turnout import losses
from turnout.array_types import Floats, Ids
from turnout.coordinator import Plan, State
from turnout.data import Quadratics
from turnout.data.federation import from_clients
from turnout.engine import Engine, Sequential, Task
from turnout.local import SGD
from turnout.models import Point
from turnout.protocols import Population
from turnout.requests import Record
from turnout.streams import Streams
from turnout.study.driver import Run, drive

LOCAL = SGD(lr=0.1, epochs=1, batch_size=4)
GROUPS = np.array([0, 1, 0, 1])  # of the quadratics below
QUADRATICS = Quadratics(curvatures=(1.0, 1.0, 2.0, 2.0), targets=((3.0, 0.0), (-3.0, 0.0), (4.0, 1.0), (-4.0, 1.0)))


def quadratics() -> Task:
    """Return four clients in two groups, whose optima are at x ≈ 2 to 3 and x ≈ −2 to −3."""
    federation = QUADRATICS.build(Streams(0))
    module = Point(dim=2, dtype="float64").build((1,), 2, torch.Generator())
    return Task(federation=federation, module=module, loss=losses.quadratic)


def network(clients: int = 6, *, seed: int = 0) -> Task:
    """Return clients of unequal size and of two kinds: those with odd ids have other labels for the same inputs."""
    rng = np.random.default_rng(seed)
    pairs = []
    for client, size in enumerate(rng.integers(8, 24, clients)):
        x = rng.normal(size=(size, 4))
        label = x[:, :3].argmax(1) if client % 2 == 0 else x[:, :3].argmin(1)
        pairs.append((torch.tensor(x), torch.tensor(label)))
    federation = from_clients(pairs, test=pairs[0], num_classes=3, holdout=0.25)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return Task(federation=federation, module=module, loss=losses.cross_entropy)


def losses_by_hand(task: Task, model: Tensor) -> Floats:
    """Return the loss of each client on its training samples."""
    parameters, found = task.layout.views(model), []
    for client in range(task.federation.num_clients):
        held = train_of(task.federation).of(client)
        found.append(float(task.loss(torch.func.functional_call(task.module, parameters, (held.x,)), held.y).mean()))
    return np.array(found)


def starts(task: Task, count: int, *, seed: int = 0) -> Tensor:
    """Return so many initial models; the first is the task's own."""
    first = task.layout.flatten(task.module)
    generator = torch.Generator().manual_seed(seed)
    others = [torch.randn(first.shape, generator=generator, dtype=first.dtype) * 0.5 for _ in range(count - 1)]
    return torch.stack([first, *others])


def several_run(
    task: Task,
    rule: Any,
    *,
    models: Tensor | None = None,
    rounds: int = 4,
    seed: int = 0,
    engine: Engine | None = None,
    state: State | None = None,
    **plan: Any,
) -> tuple[State, list[Record]]:
    """Run a plan with an assignment; `models` are the initial ones."""
    made = Plan(local=plan.pop("local", LOCAL), rounds=rounds, assignment=rule, **plan)
    people = replace(Population.of(task.federation.sizes), drift=task.federation.drift)
    if task.federation.holdout is not None:
        people = replace(people, holdout_sizes=task.federation.holdout.sizes)
    if state is None:
        rows = None if rule is None else starts(task, rule.num_models) if models is None else models
        first = task.layout.flatten(task.module) if rows is None else rows[0].clone()
        state = State.start(first, people, models=rows)
    records: list[Record] = []
    run = Run(index=0, task=task, plan=made, state=state, streams=Streams(seed), population=people)
    (final,) = drive([run], engine or Sequential(), lambda batch: records.extend(record for _, record in batch))
    return final, records


def models_of(state: State) -> Tensor:
    """Return all models of a state."""
    assert state.models is not None
    return state.models


def model_of(record: Record) -> Ids:
    """Return the model that each client trained in a round, −1 for a client that was not asked."""
    assert record.assignment is not None
    return record.assignment
