"""Runs with personal rules on quadratics and small networks, and what their clients keep."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.support.runs import run
from turnout import losses
from turnout.array_types import Floats
from turnout.coordinator import Plan, State
from turnout.data import Quadratics
from turnout.data.federation import Federation, from_clients
from turnout.engine import Task
from turnout.local import SGD
from turnout.models import Point
from turnout.protocols import Population
from turnout.requests import Record
from turnout.streams import Streams

CURVATURES = (0.5, 1.0, 2.0)
TARGETS = ((1.0, 0.0), (0.0, 2.0), (-1.0, 1.0))
QUADRATICS = Quadratics(curvatures=CURVATURES, targets=TARGETS)
THREE_STEPS = SGD(lr=0.1, steps=3)


def quadratics() -> Task:
    """Return three clients with one quadratic each, whose hold-out loss is F_i."""
    federation = QUADRATICS.build(Streams(0))
    module = Point(dim=2, dtype="float64").build((1,), 2, torch.Generator())
    return Task(federation=federation, module=module, loss=losses.quadratic)


def network(clients: int = 6, *, seed: int = 0) -> Task:
    """Return clients of unequal size with a small network in float64, each with a hold-out."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(8, 24, clients)
    pairs = [(torch.tensor(rng.normal(size=(n, 4))), torch.tensor(rng.integers(0, 3, n))) for n in sizes]
    public = torch.tensor(np.random.default_rng(seed + 1).normal(size=(9, 4)))
    federation: Federation = from_clients(pairs, test=pairs[0], public=public, num_classes=3, holdout=0.25)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return Task(federation=federation, module=module, loss=losses.cross_entropy)


def personal_run(
    task: Task, rule: Any, *, rounds: int = 4, local: Any = THREE_STEPS, **more: Any
) -> tuple[State, list[Record]]:
    """Run a plan with a personal rule."""
    how = {name: more.pop(name) for name in ("engine", "seed", "state") if name in more}
    if task.layout.buffers and "state" not in how:
        buffers = task.layout.flatten_buffers(task.module)
        how["state"] = State.start(task.layout.flatten(task.module), Population.of(task.federation.sizes), buffers)
    return run(task, Plan(local=local, rounds=rounds, personal=rule, layout=task.layout, **more), **how)


def kept(state: State, name: str = "model") -> Tensor:
    """Return the rows that clients keep, one each."""
    table = state.world[f"store personal {name}"]
    rows: Tensor = table.take(np.arange(table.num_rows))
    return rows


def objectives(models: Floats) -> Floats:
    """Return F_i of each client's own model."""
    h, e = np.array(CURVATURES), np.array(TARGETS)
    values: Floats = 0.5 * h * (models**2).sum(1) - (e * models).sum(1)
    return values


def without_world(record: Record) -> dict[str, Any]:
    """Return what a record says of the shared model, without what clients keep and what that cost."""
    return {
        "loss": record.metrics.get("loss"),
        "answered": record.answered.tolist(),
        "coefficients": record.coefficients.tolist(),
        "model": replace(record.state).model.tolist(),
    }
