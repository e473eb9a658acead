"""The server's fixed rate."""

import pytest
import torch

from tests.support.runs import run
from tests.support.tasks import blob_task
from turnout.coordinator import Cadence, Plan
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.server import SGD as ServerSGD


def test_identity_rate_one_is_the_average_of_the_models() -> None:
    task = blob_task(3)
    local = SGD(lr=0.1, batch_size=4, epochs=1)
    final, _ = run(task, Plan(local=local, rounds=1, evaluate=Cadence(every=10**9)))
    import numpy as np

    from turnout.engine.single_client import Worker
    from turnout.protocols import Population, View
    from turnout.requests import Fit
    from turnout.streams import Streams

    start, population, clients = task.layout.flatten(task.module), Population.of(task.federation.sizes), np.arange(3)
    view = View(round=1, rounds=1, streams=Streams(0), population=population, model=start)
    request = Fit(
        round=1,
        streams=Streams(0),
        model=start,
        buffers=None,
        clients=clients,
        steps=local.asked(clients, view),
        local=local,
        settings=local.settings(clients, view),
        coefficients=None,
        buffer_weights=population.weights,
    )
    worker, slab = Worker(task), task.federation.train.fetch(clients)
    models = [start - worker.train(request, i, slab).delta for i in range(3)]
    average = sum(float(p) * m for p, m in zip(population.weights, models, strict=True))
    assert torch.allclose(final.model, average, rtol=0, atol=1e-12)  # type: ignore[arg-type]


def test_golden_half_the_rate_goes_half_the_way() -> None:
    task = blob_task(3)
    local, start = SGD(lr=0.1, batch_size=4, epochs=1), task.layout.flatten(task.module)
    whole, _ = run(task, Plan(local=local, rounds=1))
    half, _ = run(task, Plan(local=local, rounds=1, server=ServerSGD(lr=0.5)))
    assert torch.allclose(half.model - start, 0.5 * (whole.model - start), rtol=0, atol=1e-12)


def test_error_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lr > 0; got 0\. Change server\.lr"):
        ServerSGD(lr=0)
