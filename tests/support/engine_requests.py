"""Requests to an engine, made by hand."""

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from turnout.array_types import Floats
from turnout.engine import Engine, Task
from turnout.engine.task import samples_of
from turnout.local import SGD
from turnout.local.batches import draw_batches
from turnout.offset import Offset
from turnout.protocols import Population, View
from turnout.requests import EngineRequest, Fit
from turnout.row_table import RowTable
from turnout.streams import Streams


def request(task: Task, coefficients: Floats | None, local: SGD | None = None, **more: Any) -> Fit:
    clients = np.arange(task.federation.num_clients)
    model = task.layout.flatten(task.module)
    population = Population.of(task.federation.sizes)
    view = View(round=1, rounds=1, streams=Streams(0), population=population, model=model)
    local = local or SGD(lr=0.1, batch_size=5, epochs=1)
    return Fit(
        round=1,
        streams=Streams(0),
        model=model,
        buffers=None,
        clients=clients,
        steps=local.asked(clients, view),
        local=local,
        settings=local.settings(clients, view),
        coefficients=coefficients,
        buffer_weights=population.weights,
        **more,
    )


def offset_of(task: Task, seed: int) -> Offset:
    """Offset with a row of their own for every client."""
    generator = torch.Generator().manual_seed(seed)
    model = task.layout.flatten(task.module)
    clients = task.federation.num_clients
    table = RowTable(clients, model)
    table.put(np.arange(clients), torch.randn(clients, model.numel(), generator=generator, dtype=model.dtype))
    common = torch.randn(model.numel(), generator=generator, dtype=model.dtype)
    shares = np.random.default_rng(seed).random(clients)
    return Offset(shared=common, table=table, scale=np.linspace(1, 2, clients), weights=shares)


LOCAL = SGD(lr=0.1, batch_size=4, steps=3)


def by_hand(task: Task, asked: Fit, place: int) -> Any:
    module, slab = copy.deepcopy(task.module), samples_of(task, asked)
    keys, one = asked.streams.keys("batches", asked.round, asked.clients[place : place + 1]), slice(place, place + 1)
    drawn = draw_batches(keys, slab.sizes[one], asked.steps[one], LOCAL.batch_size, LOCAL.batches)
    optimiser = torch.optim.SGD(module.parameters(), lr=LOCAL.lr)
    for step in range(3):
        rows = drawn.positions[0, step, : drawn.counts[0, step]] + slab.starts[place]
        rows = torch.from_numpy(rows if slab.order is None else slab.order.numpy()[rows])
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(module(slab.x[rows]), slab.y[rows]))
        optimiser.step()
    return task.layout.flatten(task.module) - task.layout.flatten(module)


def answered(engine: Engine, task: Task, request: EngineRequest) -> Any:
    """Return an engine's answer to one request; which parts of it are there is what the request asks for."""
    return engine.answer([(task, request)])[0]
