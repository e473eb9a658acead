"""Families of small models, tasks with a public set, and plans in which clients have different architectures."""

from typing import Any

import numpy as np
import torch
from torch import nn

from tests.support.runs import run
from turnout import losses
from turnout.coordinator import Plan, State
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.local import SGD
from turnout.models import MLP, Family
from turnout.models.members import Members
from turnout.requests import Record

LOCAL = SGD(lr=0.1, steps=3, batch_size=4)
FAMILY = Family(server=MLP(hidden=(7, 4)), clients=(MLP(hidden=(4,)), MLP(hidden=(5, 4))))
INPUTS, CLASSES = 5, 3


def family_task(rule: Any = FAMILY, *, clients: int = 6, public: int = 12, module: nn.Module | None = None) -> Task:
    """Return clients of unequal size with hold-outs and a public set, and a model in float64."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(8, 16, clients)
    pairs = [(torch.tensor(rng.normal(size=(n, INPUTS))), torch.tensor(rng.integers(0, CLASSES, n))) for n in sizes]
    inputs = torch.tensor(rng.normal(size=(public, INPUTS))) if public else None
    data = from_clients(pairs, test=pairs[0], public=inputs, num_classes=CLASSES, holdout=0.25)
    made = rule.build((INPUTS,), CLASSES, torch.Generator().manual_seed(1)) if module is None else module
    return Task(federation=data, module=made.double(), loss=losses.cross_entropy)


def members_of(task: Task) -> Members:
    """Return the members of a task's family."""
    return Members.of(task.module, task.federation.example)


def family_run(task: Task, *, rounds: int = 3, local: Any = LOCAL, **more: Any) -> tuple[State, list[Record]]:
    """Run a plan on a family."""
    how = {name: more.pop(name) for name in ("engine", "seed", "state") if name in more}
    plan = Plan(local=local, rounds=rounds, slices=members_of(task), layout=task.layout, **more)
    return run(task, plan, **how)
