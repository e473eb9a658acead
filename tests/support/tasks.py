"""Small federations and tasks with known answers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnout import losses
from turnout.data.federation import Federation, Held, Samples, from_clients
from turnout.engine import Task


class PointModel(nn.Module):
    """A model that is one point: with the quadratic loss, clients pull it to e_i / h_i."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.point = nn.Parameter(torch.zeros(dim, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.point.expand(len(x), -1)


def quadratic_task(curvatures: Sequence[float], linear: Sequence[Sequence[float]], sizes: Sequence[int]) -> Task:
    """F_i = ½ h_i‖x‖² − e_iᵀx, with n_i copies of the one sample that says so."""
    clients = [
        (torch.zeros(n, 1, dtype=torch.float64), torch.tensor([[h, *e]] * n, dtype=torch.float64))
        for h, e, n in zip(curvatures, linear, sizes, strict=True)
    ]
    return Task(federation=from_clients(clients), module=PointModel(len(linear[0])), loss=losses.quadratic)


def blob_federation(clients: int = 8, *, seed: int = 0, low: int = 3, high: int = 30) -> Federation:
    """Unequal clients with random inputs of four numbers and three labels."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(low, high, clients)
    pairs = [(torch.tensor(rng.normal(size=(n, 4))), torch.tensor(rng.integers(0, 3, n))) for n in sizes]
    return from_clients(pairs, test=pairs[0], num_classes=3)


def blob_task(clients: int = 8, *, seed: int = 0, hidden: int | None = 5) -> Task:
    """Return a classification task in float64."""
    generator = torch.Generator().manual_seed(seed)
    layers = [nn.Linear(4, 3)] if hidden is None else [nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 3)]
    module = nn.Sequential(*layers).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    return Task(federation=blob_federation(clients, seed=seed), module=module, loss=losses.cross_entropy)


class LastStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 3)
        self.lstm = nn.LSTM(3, 4, 2, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        hidden, _ = self.lstm(self.embed(x))
        return self.out(hidden[:, -1])


def seeded(module: Any) -> Any:
    generator = torch.Generator().manual_seed(3)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4, generator=generator)
    return module.double()


def image_federation() -> Federation:
    rng = np.random.default_rng(0)
    pairs = [
        (torch.tensor(rng.normal(size=(n, 2, 6, 6))), torch.tensor(rng.integers(0, 3, n))) for n in (5, 9, 14, 4, 8, 11)
    ]
    return from_clients(pairs, test=pairs[0], num_classes=3)


def text_federation() -> Federation:
    rng = np.random.default_rng(0)
    pairs = [
        (torch.tensor(rng.integers(0, 6, (n, 5))), torch.tensor(rng.integers(0, 3, n))) for n in (5, 9, 14, 4, 8, 11)
    ]
    return from_clients(pairs, test=pairs[0], num_classes=3)


def wide_task() -> Task:
    """Return a task whose first layer is so large beside a client's data that its weights are written once a round."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(72, 160), nn.ReLU(), nn.Linear(160, 3))
    return Task(federation=image_federation(), module=seeded(module), loss=losses.cross_entropy)


def train_of(federation: Federation) -> Held:
    """Return the clients' samples, which are in memory."""
    assert isinstance(federation.train, Held)
    return federation.train


def holdout_of(federation: Federation) -> Held:
    """Return what the clients hold out."""
    assert federation.holdout is not None
    return federation.holdout


def held_out_test_set(federation: Federation) -> Samples:
    """Return the test set."""
    assert federation.test is not None
    return federation.test


def server_of(federation: Federation) -> Samples:
    """Return the server's samples."""
    assert federation.server is not None
    return federation.server
