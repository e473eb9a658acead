"""Each kernel alone against the reference engine, on random settings of the solver."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.support.engine_requests import answered
from tests.support.tasks import blob_task, quadratic_task
from turnout import losses
from turnout.data import from_clients
from turnout.engine import Sequential, Task, Vectorised
from turnout.local import SGD, Adagrad, Adam, Yogi
from turnout.offset import Offset
from turnout.protocols import Local, Population, SlotUpdate, View
from turnout.requests import Fit
from turnout.row_table import RowTable
from turnout.streams import Streams

CLIENTS = 5


class Tangled(nn.Module):
    """A forward pass that only vmap can stack."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.einsum("bi,oi->bo", x, self.inner.weight)
        out: Tensor = self.outer(torch.where(h > 0, h, torch.sin(h)) + torch.cumsum(h, -1) + self.inner.bias)
        return out


def task_of(module: nn.Module, inputs: int = 4) -> Task:
    rng = np.random.default_rng(1)
    pairs = [
        (torch.tensor(rng.normal(size=(n, inputs))), torch.tensor(rng.integers(0, 3, n))) for n in (7, 12, 5, 9, 16)
    ]
    generator = torch.Generator().manual_seed(0)
    for parameter in module.double().parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return Task(federation=from_clients(pairs, num_classes=3), module=module, loss=losses.cross_entropy)


TASKS = {
    "lazy first layer": task_of(nn.Sequential(nn.Linear(300, 20), nn.ReLU(), nn.Linear(20, 3)), 300),
    "dense": task_of(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))),
    "lowered": task_of(nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))),
    "mapped": task_of(Tangled()),
}
ROLLING: list[dict[str, Any]] = [{}, {"momentum": 0.5}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}]
SOLVERS = st.builds(
    lambda rolling, **more: SGD(**rolling, **more),
    rolling=st.sampled_from(ROLLING),
    lr=st.floats(0.01, 0.3),
    batch_size=st.sampled_from([2, 3]),
    steps=st.sampled_from([2, (1, 4)]),
    weight_decay=st.sampled_from([0.0, 0.1]),
    prox_strength=st.sampled_from([0.0, 0.5]),
    lr_decay=st.sampled_from([1.0, 0.8]),
    clip_norm=st.sampled_from([None, 0.5]),
)


def request(task: Task, local: Local, coefficients: Any = None, **more: Any) -> Fit:
    """Return the request to train every client from the task's own parameters."""
    clients, model = np.arange(task.federation.num_clients), task.layout.flatten(task.module)
    population = Population.of(task.federation.sizes)
    view = View(round=1, rounds=1, streams=Streams(0), population=population, model=model)
    return Fit(round=1, streams=Streams(0), model=model, buffers=None, clients=clients,
               steps=local.asked(clients, view), local=local, settings=local.settings(clients, view),
               coefficients=coefficients, buffer_weights=population.weights, **more)  # fmt: skip


def table_of(task: Task, seed: int) -> RowTable:
    """Return random rows, one per client."""
    table = RowTable(CLIENTS, task.layout.flatten(task.module))
    rows = torch.randn(CLIENTS, task.layout.size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    table.put(np.arange(CLIENTS), rows * 0.1)
    return table


def only(name: str, task: Task, block: int = 3) -> Vectorised:
    """Return an engine that has this kernel alone."""
    engine = Vectorised("cpu", block=block)
    prepared = engine._prepare(task)
    prepared.kernels = [kernel for kernel in prepared.kernels if kernel.name == name]
    assert prepared.kernels
    return engine


@pytest.mark.parametrize("name", TASKS)
@given(local=SOLVERS, has_offset=st.booleans(), wants_rows=st.booleans())
@settings(max_examples=12)
def test_engine_a_kernel_alone_gives_the_references_numbers(
    name: str, local: SGD, has_offset: bool, wants_rows: bool
) -> None:
    task = TASKS[name]
    if name == "lazy first layer":
        local = replace(local, clip_norm=None, steps=2)  # what it is meant for
    coefficients = None if wants_rows else np.linspace(0.1, 0.5, CLIENTS)
    more: dict[str, Any] = {}
    if has_offset:
        shared = torch.full((task.layout.size,), 0.01, dtype=torch.float64)
        more["offset"] = Offset(shared=shared, table=table_of(task, 1))
    asked = request(task, local, coefficients, **more)
    mine = answered(only(name, task), task, asked)
    reference = answered(Sequential(), task, asked)
    for one, other in ((mine.reduced, reference.reduced), (mine.delta, reference.delta)):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, rtol=0, atol=1e-11)
    assert np.allclose(mine.loss, reference.loss, rtol=0, atol=1e-11)


def test_contract_the_first_kernel_that_supports_a_block_trains_it() -> None:
    names = {name: [kernel.name for kernel in Vectorised("cpu")._prepare(task).kernels] for name, task in TASKS.items()}
    assert names == {
        "lazy first layer": ["lazy first layer", "dense"],
        "dense": ["lazy first layer", "dense"],
        "lowered": ["lazy first layer", "lowered"],
        "mapped": ["mapped"],
    }


class Replacing(Adam):
    """Adam that puts new tensors in place of its moments."""

    def update(self, slot: SlotUpdate) -> None:
        """Move one parameter of every row by one step."""
        slot.state.update({name: value.clone() for name, value in slot.state.items()})
        Adam.update(self, slot)


@pytest.mark.parametrize("piece_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("is_alike", [True, False])
@pytest.mark.parametrize(
    "local",
    [
        Adam(lr=0.05, batch_size=3, steps=(2, 4)),
        Adam(lr=0.05, batch_size=3, steps=3, bias_correction=True),
        Adam(lr=0.05, batch_size=3, steps=3, correction="joint", initial_accumulator=0.1),
        Adam(lr=0.05, batch_size=3, steps=3, clip_norm=0.2),
        Adagrad(lr=0.05, batch_size=3, steps=3),
        Yogi(lr=0.05, batch_size=3, steps=3),
        Replacing(lr=0.05, batch_size=3, steps=3),
    ],
    ids=lambda local: type(local).__name__,
)
@pytest.mark.parametrize("name", ["dense", "lowered", "mapped"])
def test_engine_rows_moved_in_pieces_agree_with_the_reference(
    name: str, local: Local, is_alike: bool, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnout.engine.vectorised.optimizers.PIECE_BYTES", piece_bytes)
    task = TASKS[name]
    asked = request(task, local)
    if not is_alike:
        asked = replace(asked, settings={**asked.settings, "lr": np.linspace(0.01, 0.1, CLIENTS)})
    mine = answered(only(name, task, block=4), task, asked)
    reference = answered(Sequential(), task, asked)
    assert torch.allclose(mine.delta, reference.delta, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "local",
    [
        SGD(lr=0.1, batch_size=3, steps=(1, 4), prox_strength=0.5),
        SGD(lr=0.1, batch_size=3, steps=2),
        Adam(lr=0.05, batch_size=3, steps=3),
    ],
)
@pytest.mark.parametrize("name", TASKS)
def test_engine_clients_with_starts_of_their_own_agree_with_the_reference(name: str, local: Local) -> None:
    task = TASKS[name]
    asked = request(task, local, starts=table_of(task, 2))
    mine = answered(Vectorised("cpu", block=3), task, asked)
    alone = answered(Vectorised("cpu", stack=False, workers=2), task, asked)
    reference = answered(Sequential(), task, asked)
    assert torch.allclose(mine.delta, reference.delta, rtol=0, atol=1e-11)
    assert torch.allclose(alone.delta, reference.delta, rtol=0, atol=1e-11)


def test_identity_starts_that_are_the_model_change_nothing() -> None:
    task, local = blob_task(CLIENTS), SGD(lr=0.1, batch_size=3, steps=3, momentum=0.5)
    table = RowTable(CLIENTS, task.layout.flatten(task.module))
    table.put(np.arange(CLIENTS), task.layout.flatten(task.module).expand(CLIENTS, -1))
    for engine in (Sequential(), Vectorised("cpu", block=2)):
        given_starts = answered(engine, task, request(task, local, starts=table))
        plain = answered(engine, task, request(task, local))
        assert torch.equal(given_starts.delta, plain.delta)


def test_golden_a_proximal_term_pulls_to_the_model_and_not_to_the_start() -> None:

    task = quadratic_task([1.0], [[0.0]], [1])  # F = ½x²
    model = task.layout.flatten(task.module)  # 0
    table = RowTable(1, model)
    table.put(np.array([0]), torch.full((1, 1), 4.0, dtype=torch.float64))
    local = SGD(lr=0.5, steps=1, prox_strength=1.0)
    asked = replace(request(task, local), starts=table)
    for engine in (Sequential(), Vectorised("cpu", block=1)):
        answer = answered(engine, task, asked)
        # x ← 4 − ½·(4 + 1·(4 − 0)) = 0, so Δ = 4; a pull to the start would give 2
        assert answer.delta.tolist() == [[4.0]]
