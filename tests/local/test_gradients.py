"""The three ways of drawing mini-batches: full gradients, draws with replacement, shuffled passes."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.local_claims import moved
from tests.support.tasks import PointModel
from turnout import losses
from turnout.aggregation import FedAvg
from turnout.data.federation import from_clients
from turnout.engine import Task, Vectorised
from turnout.local import SGD

TARGETS = [1.0, 4.0, -2.0, 10.0, 0.5]  # F = mean (x − y)², whose gradient at 0 is −2·mean(y)


def copies(clients: int) -> Task:
    """Return a task of clients that all hold the same five samples."""
    x, y = torch.zeros(5, 1, dtype=torch.float64), torch.tensor(TARGETS, dtype=torch.float64)[:, None]
    return Task(federation=from_clients([(x, y)] * clients), module=PointModel(1), loss=losses.squared_error)


def first_step(clients: int, **how: Any) -> float:
    """Return the mean move of one step of η = ½ from 0, whose expectation is mean(y)."""
    engine = Vectorised("cpu", block=5000)
    return float(moved(copies(clients), SGD(lr=0.5, steps=1, **how), engine=engine, aggregation=FedAvg()))


@pytest.mark.parametrize("batches", ["replaced", "shuffled"])
def test_property_one_mini_batch_is_unbiased(batches: str) -> None:
    clients, size = 4000, 2
    spread = np.std(TARGETS) / np.sqrt(size * clients)
    found = first_step(clients, batch_size=size, batches=batches)
    assert found == pytest.approx(np.mean(TARGETS), abs=4 * spread)
    assert found != pytest.approx(np.mean(TARGETS), abs=1e-9)  # and it is random


def test_identity_full_batches_are_the_gradient() -> None:
    assert first_step(3, batches="full") == pytest.approx(np.mean(TARGETS), abs=1e-12)
    assert first_step(3, batch_size=None) == pytest.approx(np.mean(TARGETS), abs=1e-12)
    assert first_step(3, batch_size=5) == pytest.approx(np.mean(TARGETS), abs=1e-12)  # a whole pass in one batch


def test_identity_one_shuffled_pass_sees_every_sample_once_and_draws_with_replacement_do_not() -> None:
    # F_i = −y x would move by η·Σy in a pass of single samples, whatever the order
    y = torch.tensor([[0.0, value] for value in TARGETS], dtype=torch.float64)
    x = torch.zeros(5, 1, dtype=torch.float64)
    task = Task(federation=from_clients([(x, y)]), module=PointModel(1), loss=losses.quadratic)
    once = moved(task, SGD(lr=0.1, batch_size=1, epochs=1))
    assert float(once) == pytest.approx(0.1 * sum(TARGETS), abs=1e-12)
    replaced = moved(task, SGD(lr=0.1, batch_size=1, epochs=1, batches="replaced"))
    assert float(replaced) != pytest.approx(0.1 * sum(TARGETS), abs=1e-9)
