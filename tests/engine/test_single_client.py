"""A worker trains as a plain loop over a copy of the module does, however its parameters lie in memory."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.engine_requests import LOCAL, answered, by_hand, request
from tests.support.tasks import LastStep, image_federation, seeded, text_federation
from turnout import losses
from turnout.data import from_clients
from turnout.engine import Sequential, Task, Vectorised
from turnout.engine.single_client import Worker
from turnout.engine.task import samples_of
from turnout.engine.vectorised.autotune import Execution, candidates
from turnout.local import SGD


def image_task() -> Task:
    layers = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2), nn.Flatten()
    module = nn.Sequential(*layers, nn.Linear(16, 3))
    return Task(federation=image_federation(), module=seeded(module), loss=losses.cross_entropy)


def text_task() -> Task:
    return Task(federation=text_federation(), module=seeded(LastStep()), loss=losses.cross_entropy)


@pytest.mark.parametrize("pixels_last", [False, True])
@pytest.mark.parametrize("make", [image_task, text_task])
def test_identity_a_worker_is_a_plain_loop_client_after_client(make: Callable[..., Any], pixels_last: bool) -> None:
    task = make()
    asked, worker = request(task, None, LOCAL), Worker(task, pixels_last)
    slab = samples_of(task, asked)
    for place in (0, 3, 1, 0):
        change = worker.train(asked, place, slab).delta
        assert torch.allclose(change, by_hand(task, asked, place), rtol=0, atol=1e-12)


def test_golden_convolutions_are_tried_with_pixels_last_and_their_weights_lie_so() -> None:
    assert Execution(False, 1, 2, 1, pixels_last=True) in candidates(10, 1 << 20, True, 2, 2, of_images=True)
    assert not any(way.pixels_last for way in candidates(10, 1 << 20, True, 2, 2))
    last = Worker(image_task(), pixels_last=True)
    assert last.params[0].is_contiguous(memory_format=torch.channels_last)
    assert Worker(image_task()).params[0].is_contiguous()


def test_contract_small_networks_of_images_are_tried_one_by_one_too() -> None:
    assert Execution(False, 1, 2, 1) in candidates(10, 100 << 10, True, 2, 2, of_images=True)
    assert all(way.stacked for way in candidates(10, 100 << 10, True, 2, 2))


@pytest.mark.parametrize("make", [image_task, text_task])
def test_engine_rows_of_one_worker_do_not_run_into_each_other(make: Callable[..., Any]) -> None:
    task = make()
    asked = request(task, None, LOCAL)
    rows = answered(Vectorised("cpu", stack=False, workers=2, threads=1), task, asked)
    expected = torch.stack([by_hand(task, asked, place) for place in range(len(asked.clients))])
    assert torch.allclose(rows.delta, expected, rtol=0, atol=1e-12)
    shares = np.random.default_rng(0).random(len(asked.clients))
    summed = answered(Vectorised("cpu", stack=False, workers=2, threads=1), task, request(task, shares, LOCAL))
    assert torch.allclose(summed.reduced, torch.from_numpy(shares) @ expected, rtol=0, atol=1e-12)


def test_golden_a_module_with_a_counter_trains_as_a_plain_loop_does() -> None:
    """BatchNorm counts its batches in an integer buffer, which is neither trained nor sent."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 4, generator=generator, dtype=torch.float64), torch.arange(12) % 3
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator)
    task = Task(federation=from_clients([(x, y)], num_classes=3), module=module, loss=losses.cross_entropy)
    local = SGD(lr=0.1, steps=3, batches="full")
    asked = replace(request(task, None, local), buffers=task.layout.flatten_buffers(module))
    answer = answered(Sequential(), task, asked)
    plain = copy.deepcopy(module).train()
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        nn.functional.cross_entropy(plain(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    change = task.layout.flatten(module) - task.layout.flatten(plain)
    assert torch.allclose(answer.delta[0], change, rtol=0, atol=1e-12)
    assert torch.allclose(answer.buffers, task.layout.flatten_buffers(plain), rtol=0, atol=1e-12)
