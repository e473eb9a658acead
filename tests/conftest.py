"""Shared set-up: a private cache folder, and small federations with known answers."""

import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

from turnout import losses
from turnout.cli import main
from turnout.coordinator import Plan, State
from turnout.data.federation import Federation, from_clients
from turnout.engine import Engine, Sequential, Task, Vectorised
from turnout.protocols import Population
from turnout.requests import Record
from turnout.streams import Streams
from turnout.study import Result
from turnout.study.driver import Run, drive

settings.register_profile("turnout", settings.default, deadline=None)  # the machine may be busy
settings.load_profile("turnout")


@pytest.fixture(autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNOUT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Turnout = Callable[..., Said]


@pytest.fixture
def turnout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Turnout:
    """Run the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def call(*arguments: object) -> Said:
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        return Said(int(left.value.code or 0), *capsys.readouterr())

    return call


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


def run(
    task: Task, plan: Plan, *, seed: int = 0, engine: Engine | None = None, state: State | None = None
) -> tuple[State, list[Record]]:
    """Run one plan, from its start or from a state, and return the last state and the records."""
    held = task.federation.server
    population = Population.of(task.federation.sizes, server_size=0 if held is None else len(held))
    records: list[Record] = []
    state = state or State.start(task.layout.flatten(task.module), population)
    job = Run(index=0, task=task, plan=plan, state=state, streams=Streams(seed), population=population)
    (final,) = drive([job], engine or Sequential(), lambda batch: records.extend(r for _, r in batch))
    return final, records


def models_of(result: Result) -> dict[tuple[str, int], Tensor]:
    """Return the last model of each finished (arm, seed), all its numbers in one vector."""
    return {
        place: torch.cat([tensor.flatten() for tensor in result.state_dict(*place).values()])
        for place in result.loaded.finished
    }


@pytest.fixture(params=["sequential", "stacked", "blocks", "workers"])
def any_engine(request: pytest.FixtureRequest) -> Callable[[], Engine]:
    """Every way of running clients."""
    ways: dict[str, Callable[[], Engine]] = {
        "sequential": Sequential,
        "stacked": lambda: Vectorised("cpu", block=1000),
        "blocks": lambda: Vectorised("cpu", block=3, threads=1),
        "workers": lambda: Vectorised("cpu", stack=False, workers=2),
    }
    return ways[request.param]


@pytest.fixture
def data_folder() -> Path:
    """The folder of real data sets, where TURNOUT_DATA names one."""
    import os

    named = os.environ.get("TURNOUT_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("TURNOUT_DATA does not name a folder of data sets")
    return Path(named)
