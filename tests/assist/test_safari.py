"""SAFARI: q = 1 is the base run bit for bit, q = 0 is SGD at the server, and in between they interleave."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.conftest import PointModel, blob_federation, blob_task, run
from turnout import losses
from turnout.assist import Safari
from turnout.coordinator import Cadence, Plan
from turnout.data.federation import Samples, from_clients
from turnout.engine import Task
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.selection import Uniform

NEVER = Cadence(every=10**9)


def helped_task():
    task = blob_task(6)
    other = blob_federation(1, seed=9)
    federation = replace(task.federation, server=Samples(other.train.x, other.train.y))
    return Task(federation=federation, module=task.module, loss=task.loss)


PLAN = Plan(local=SGD(lr=0.1, batch_size=5, epochs=1), rounds=12, selection=Uniform(cohort_size=3), evaluate=NEVER)


def plan_with(**settings):
    return replace(PLAN, assist=Safari(lr=0.2, **settings))


def run_helped(task, plan, engine=None, seed=0):
    from tests.conftest import Population, Run, State, Streams, drive
    from turnout.engine import Sequential

    held = task.federation.server
    population = Population.of(task.federation.sizes, server_size=0 if held is None else len(held))
    records = []
    state = State.start(task.layout.flatten(task.module), population)
    job = Run(index=0, task=task, plan=plan, state=state, streams=Streams(seed), population=population)
    (final,) = drive([job], engine or Sequential(), lambda batch: records.extend(r for _, r in batch))
    return final, records


def test_identity_q_one_is_the_base_run_bit_for_bit(any_engine):
    task = helped_task()
    base, _ = run(task, PLAN, engine=any_engine())
    helped, records = run_helped(task, plan_with(client_prob=1.0), any_engine())
    assert torch.equal(base.model, helped.model)
    assert all("server round" not in r.events for r in records)


def test_identity_q_zero_is_gradient_descent_at_the_server(any_engine):
    task = helped_task()
    final, records = run_helped(task, plan_with(client_prob=0.0), any_engine())
    module = task.layout.load(task.module, task.layout.flatten(task.module))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.2)
    x, y = task.federation.server
    for _ in range(12):
        optimiser.zero_grad()
        task.loss(module(x), y).mean().backward()
        optimiser.step()
    assert torch.allclose(final.model, task.layout.flatten(module), rtol=0, atol=1e-12)
    assert all(r.events == ("server round",) and len(r.asked) == 0 for r in records[1:])


def test_identity_in_between_the_two_interleave_and_clients_are_drawn_as_without_help():
    task = helped_task()
    _, base = run(task, PLAN)
    _, records = run_helped(task, plan_with(client_prob=0.5))
    mine = [r for r in records[1:] if r.events != ("server round",)]
    assert 0 < len(mine) < 12
    for record in mine:
        assert np.array_equal(record.asked, base[record.round].asked)


def test_property_client_rounds_are_binomial():
    task = helped_task()
    counts = [sum(len(r.asked) > 0 for r in run_helped(task, plan_with(client_prob=0.7), seed=s)[1]) for s in range(60)]
    assert np.mean(counts) == pytest.approx(12 * 0.7, abs=4 * np.sqrt(12 * 0.21 / 60))


def test_convergence_server_samples_stand_in_for_a_client_that_never_comes():
    # clients pull to 0; the server's samples want 4, as the missing client would
    rows = [(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))]
    held = (torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0, 4.0]], dtype=torch.float64))
    task = Task(federation=from_clients(rows, server=held), module=PointModel(1), loss=losses.quadratic)
    local = SGD(lr=0.01, steps=1, batches="full")
    plan = Plan(local=local, rounds=4000, evaluate=NEVER, assist=Safari(lr=0.01, client_prob=0.5))
    final, _ = run_helped(task, plan)
    assert float(final.model) == pytest.approx(2.0, abs=0.5)  # the even mixture of both


def test_golden_q_from_theory():
    assert Safari(lr=0.1, client_prob="theory", participants=5, local_steps=4).q == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"client_prob": 1.5}, r"client_prob in \[0, 1\]; got 1\.5"),
        ({"client_prob": "theory"}, "needs participants and local_steps"),
    ],
)
def test_error_settings(settings, text):
    with pytest.raises(ConfigError, match=text):
        Safari(lr=0.1, **settings)


def test_error_no_samples_at_the_server():
    task = blob_task(6)
    with pytest.raises(ConfigError, match=r"Safari needs samples at the server.*data\.server_samples"):
        run_helped(task, plan_with(client_prob=0.5))
