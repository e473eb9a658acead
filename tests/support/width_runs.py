"""Runs in which clients train models of different widths, and a reference that masks instead of slicing."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.support.runs import run
from turnout import losses
from turnout.array_types import Ids
from turnout.coordinator import Plan, State
from turnout.data.federation import Federation, from_clients
from turnout.engine import Task
from turnout.local import SGD
from turnout.models import CNN, MLP, CharLSTM
from turnout.models.slices import Slices
from turnout.requests import Record

LOCAL = SGD(lr=0.1, epochs=1, batch_size=4)


def federation_of(shape: tuple[int, ...], *, clients: int = 6, classes: int = 3, text: int = 0) -> Federation:
    """Return clients of unequal size with random samples; with `text`, samples are indices below it."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(6, 15, clients)

    def samples(count: int) -> tuple[Tensor, Tensor]:
        x = rng.integers(0, text, (count, *shape)) if text else rng.normal(size=(count, *shape))
        return torch.tensor(x), torch.tensor(rng.integers(0, classes, count))

    return from_clients([samples(n) for n in sizes], test=samples(20), num_classes=classes, holdout=0.0)


def task_of(module: nn.Module, federation: Federation) -> Task:
    """Return the task of a module in float64."""
    return Task(federation=federation, module=module.double(), loss=losses.cross_entropy)


def mlp(hidden: tuple[int, ...] = (8, 6)) -> Task:
    """Return a small network of linear layers."""
    made = MLP(hidden=hidden).build((5,), 3, torch.Generator().manual_seed(1))
    return task_of(made, federation_of((5,)))


def cnn() -> Task:
    """Return two convolutions, a flattening and two linear layers."""
    made = CNN(dense=12).build((1, 8, 8), 3, torch.Generator().manual_seed(1))
    return task_of(made, federation_of((1, 8, 8), clients=3))


def lstm() -> Task:
    """Return an embedding, two recurrent layers and a linear layer."""
    made = CharLSTM(embedding=4, hidden=6, vocabulary=7).build((5,), 3, torch.Generator().manual_seed(1))
    return task_of(made, federation_of((5,), text=7))


TASKS = {"mlp": mlp, "cnn": cnn, "lstm": lstm}


def slices_of(task: Task) -> Slices:
    """Return the slices of a task's module."""
    return Slices.of(task.module, task.federation.train.fetch(np.arange(1)).x[:1])


def width_run(task: Task, rule: Any, *, rounds: int = 3, local: Any = LOCAL, **more: Any) -> tuple[State, list[Record]]:
    """Run a plan with a width rule; None is a plan without one."""
    how = {name: more.pop(name) for name in ("engine", "seed", "state") if name in more}
    slices = None if rule is None else slices_of(task)
    plan = Plan(local=local, rounds=rounds, width=rule, slices=slices, layout=task.layout, **more)
    counts = None if task.federation.num_classes is None else task.federation.label_counts()
    return run(task, plan, label_counts=counts, **how)


def masked_output(slices: Slices, flat: Tensor, units: list[Ids], x: Tensor) -> Tensor:
    """Return the output of the whole module in which nothing reads the units that are left out.

    It is the reference for slices, and an independent one: weights are set to 0 by layer, whatever columns a slice has.
    """
    module = slices.layout.load(copy.deepcopy(slices.module), flat)
    for layer in slices.anatomy.layers:
        mine = module.get_submodule(layer.name)
        for group, chosen in enumerate(units):
            lost = (layer.feature_groups == group) & ~np.isin(layer.feature_units, chosen)
            _forget(mine, torch.from_numpy(np.flatnonzero(lost)), layer.group == group, chosen)
    with torch.no_grad():
        out: Tensor = module.eval()(x)
    return out


def _forget(layer: nn.Module, inputs: Tensor, is_own: bool, chosen: Ids) -> None:
    """Set the weights of some inputs to 0, and in a recurrent layer those of its own units that are left out."""
    with torch.no_grad():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.weight[:, inputs] = 0
        if isinstance(layer, nn.LSTM):
            dict(layer.named_parameters())["weight_ih_l0"][:, inputs] = 0
            if is_own:
                lost = torch.from_numpy(np.setdiff1d(np.arange(layer.hidden_size), chosen))
                for name, weight in layer.named_parameters():
                    if name.startswith("weight_hh") or (name.startswith("weight_ih") and name != "weight_ih_l0"):
                        weight[:, lost] = 0
