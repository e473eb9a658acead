"""PyTorch's optimisers beside the local solvers: the same network, samples and mini-batches, one client."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from turnout import losses
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.local import SGD, Adagrad, Adam
from turnout.local.batches import draw_batches
from turnout.protocols import Local
from turnout.streams import Streams

Optimiser = Callable[[Iterable[Tensor]], torch.optim.Optimizer]

ROUNDS, SAMPLES = 3, 23
# Two passes and a bit; the last batch of a pass is smaller.
WORK: dict[str, Any] = {"lr": 0.2, "steps": 12, "batch_size": 5}


def solvers() -> dict[str, tuple[Local, Optimiser, float | None]]:
    """Return each local solver, PyTorch's optimiser of the same settings, and the norm gradients are clipped to."""
    lr, betas = WORK["lr"], (0.8, 0.95)
    adam = Adam(**WORK, bias_correction=True, beta1=betas[0], beta2=betas[1])
    return {
        "SGD": (SGD(**WORK), lambda p: torch.optim.SGD(p, lr=lr), None),
        "SGD, momentum and weight decay": (
            SGD(**WORK, momentum=0.9, weight_decay=0.05),
            lambda p: torch.optim.SGD(p, lr=lr, momentum=0.9, weight_decay=0.05),
            None,
        ),
        "SGD, clipped": (SGD(**WORK, clip_norm=0.3), lambda p: torch.optim.SGD(p, lr=lr), 0.3),
        "Adagrad": (
            Adagrad(**WORK, initial_accumulator=0.1),
            lambda p: torch.optim.Adagrad(p, lr=lr, eps=1e-3, initial_accumulator_value=0.1),
            None,
        ),
        "Adam": (adam, lambda p: torch.optim.Adam(p, lr=lr, betas=betas, eps=1e-3), None),
    }


def small_task() -> Task:
    """Return one client's samples and a small network, in double precision."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(SAMPLES, 6, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 3, (SAMPLES,), generator=draw)
    module = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=draw)
    return Task(federation=from_clients([(x, y)], num_classes=3), module=module, loss=losses.cross_entropy)


def torch_path(
    task: Task, local: Local, optimiser: Optimiser, clip_norm: float | None, streams: Streams
) -> NDArray[np.float64]:
    """Return the model after each round of PyTorch's optimiser, begun afresh in every round."""
    start, path = task.layout.flatten(task.module), []
    x, y = task.federation.train.of(0)
    steps = np.array([WORK["steps"]], dtype=np.int64)
    for round in range(1, ROUNDS + 1):
        keys = streams.keys("batches", round, np.zeros(1, dtype=np.int64))
        batches = draw_batches(keys, np.array([SAMPLES]), steps, local.batch_size, local.batches)
        moving = optimiser(task.module.parameters())
        for places, count in zip(batches.positions[0], batches.counts[0], strict=True):
            batch = torch.from_numpy(places[:count])
            moving.zero_grad()
            F.cross_entropy(task.module(x[batch]), y[batch]).backward()
            if clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(task.module.parameters(), clip_norm)
            moving.step()
        path.append(task.layout.flatten(task.module).numpy().copy())
    task.layout.load(task.module, start)
    return np.stack(path)
