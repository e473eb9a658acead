"""Models with running statistics, and what must hold of them where clients keep normalisation layers."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.support.personal_runs import kept, network, personal_run
from turnout import losses
from turnout.coordinator import State
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.local import SGD
from turnout.personal import Layers
from turnout.requests import Record

FULL = SGD(lr=0.1, steps=2, batches="full")
NORMS = Layers(keep_norms=True)


def normalised(clients: int = 6, *, tracked: bool = True, seed: int = 0) -> Task:
    """Return clients with a small network with two layers of batch normalisation; the inputs of each are scaled."""
    data = network(clients, seed=seed).federation
    layers = [nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3), nn.BatchNorm1d(3)]
    module = nn.Sequential(*layers).double()
    if not tracked:
        module[1] = nn.BatchNorm1d(6, track_running_stats=False).double()
    generator = torch.Generator().manual_seed(seed)
    for layer in (module[0], module[3]):
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)
    return Task(federation=data, module=module, loss=losses.cross_entropy)


def two_clients() -> Task:
    """Return two clients whose inputs, 0, 2 and −5, −1, have the means 1 and −3 and the variances 2 and 8."""
    pairs = [
        (torch.tensor([[0.0], [2.0]], dtype=torch.float64), torch.tensor([0, 1])),
        (torch.tensor([[-5.0], [-1.0]], dtype=torch.float64), torch.tensor([1, 0])),
    ]
    module = nn.Sequential(nn.BatchNorm1d(1, momentum=0.5), nn.Linear(1, 2)).double()
    with torch.no_grad():
        for value, parameter in zip((1.0, 0.0, 0.5, 0.25), module.parameters(), strict=True):
            parameter.fill_(value)
    return Task(federation=from_clients(pairs, test=pairs[0], num_classes=2), module=module, loss=losses.cross_entropy)


def statistics_run(
    task: Task, rule: Any, *, rounds: int = 3, local: Any = FULL, **more: Any
) -> tuple[State, list[Record]]:
    """Run a plan on a model with running statistics."""
    return personal_run(task, rule, rounds=rounds, local=local, **more)


def check_statistics_never_mix(rule: Layers) -> None:
    """Two clients, worked by hand: a running mean goes half of the way to its own client's mean in each step."""
    task = two_clients()
    final, _ = statistics_run(task, rule, rounds=2)
    left = 0.5**4  # two rounds of two steps
    expected = [[1 - left, 2 + (1 - 2) * left], [-3 * (1 - left), 8 + (1 - 8) * left]]

    assert kept(final, "buffers").tolist() == pytest.approx(np.array(expected), abs=1e-15)


def check_the_average_has_only_what_is_shared(rule: Layers) -> None:
    """Of two layers the first stays: the server's statistics of the second are the weighted mean of the clients'."""
    task = normalised(3)
    final, _ = statistics_run(task, rule, rounds=1)
    stays = task.layout.buffer_columns(("1.running_mean", "1.running_var"))
    shared = task.layout.buffer_columns(("4.running_mean", "4.running_var"))
    ends = torch.stack([trained_alone(task, client, FULL.steps)[1] for client in range(3)])
    assert final.buffers is not None

    assert torch.equal(final.buffers[stays], task.layout.flatten_buffers(task.module)[stays])
    mean = torch.from_numpy(task.federation.weights) @ ends[:, shared]
    assert torch.allclose(final.buffers[shared], mean, rtol=0, atol=1e-14)
    assert torch.allclose(kept(final, "buffers"), ends[:, stays], rtol=0, atol=1e-14)


def trained_alone(task: Task, client: int, steps: Any, lr: float = 0.1) -> tuple[Tensor, Tensor]:
    """Return the parameters and the running statistics after so many steps of plain PyTorch on a client's samples."""
    x, y = samples(task, client)
    module = copied(task)
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    for _ in range(int(steps)):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(module(x), y).mean())
        optimiser.step()
    return task.layout.flatten(module), task.layout.flatten_buffers(module)


def copied(task: Task) -> nn.Module:
    """Return a module of its own, in training mode."""
    return copy.deepcopy(task.module).train()


def samples(task: Task, client: int) -> tuple[Tensor, Tensor]:
    """Return a client's training samples."""
    slab = task.federation.train.fetch(np.array([client]))
    rows = np.arange(int(slab.starts[0]), int(slab.starts[0] + slab.sizes[0]))
    where = torch.from_numpy(rows if slab.order is None else slab.order.numpy()[rows])
    return slab.x[where], slab.y[where]


def holdout_loss(task: Task, client: int, model: Tensor, buffers: Tensor) -> float:
    """Return the loss of a model with these statistics on a client's hold-out, in plain PyTorch."""
    assert task.federation.holdout is not None
    x, y = task.federation.holdout.of(client)
    state = task.layout.views(model) | {slot.name: slot.view(buffers) for slot in task.layout.buffers}
    return float(task.loss(functional_call(task.module.eval(), state, (x,)), y).mean())
