"""SAFARI: q = 1 is the base run bit for bit, q = 0 is SGD at the server, and in between they interleave."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.optional import present
from tests.support.runs import run
from tests.support.tasks import PointModel, blob_federation, blob_task, server_of, train_of
from turnout import losses
from turnout.assist import Safari
from turnout.coordinator import Cadence, Plan, State, Turnover
from turnout.coordinator.records import NOBODY_EVER
from turnout.data.federation import Samples, from_clients
from turnout.engine import Engine, Sequential, Task
from turnout.engine.task import Question
from turnout.errors import ConfigError
from turnout.fleet import Fleet, Scheduled
from turnout.local import SGD
from turnout.protocols import Population
from turnout.requests import Answer, Evaluate
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.study.driver import Run, drive

NEVER = Cadence(every=10**9)


def helped_task() -> Task:
    task = blob_task(6)
    other = blob_federation(1, seed=9)
    federation = replace(task.federation, server=Samples(train_of(other).x, train_of(other).y))
    return Task(federation=federation, module=task.module, loss=task.loss)


PLAN = Plan(local=SGD(lr=0.1, batch_size=5, epochs=1), rounds=12, selection=Uniform(cohort_size=3), evaluate=NEVER)


def plan_with(**settings: Any) -> Plan:
    return replace(PLAN, assist=Safari(lr=0.2, **settings))


def population_of(task: Task) -> Population:
    return Population.of(task.federation.sizes, server_size=len(server_of(task.federation)))


def run_from(state: State, task: Task, plan: Plan) -> State:
    """Go on from a state to the plan's last round."""
    population = population_of(task)
    job = Run(index=0, task=task, plan=plan, state=state, streams=Streams(0), population=population)
    (final,) = drive([job], Sequential(), lambda batch: None)
    return final


def test_identity_q_one_is_the_base_run_bit_for_bit(any_engine: Callable[[], Engine]) -> None:
    task = helped_task()
    base, _ = run(task, PLAN, engine=any_engine())
    helped, records = run(task, plan_with(client_prob=1.0), engine=any_engine())
    assert torch.equal(base.model, helped.model)
    assert all("server round" not in r.events for r in records)


def test_identity_q_zero_is_gradient_descent_at_the_server(any_engine: Callable[[], Engine]) -> None:
    task = helped_task()
    final, records = run(task, plan_with(client_prob=0.0), engine=any_engine())
    module = task.layout.load(task.module, task.layout.flatten(task.module))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.2)
    x, y = task.federation.server  # type: ignore[misc]
    for _ in range(12):
        optimiser.zero_grad()
        torch.autograd.backward(task.loss(module(x), y).mean())
        optimiser.step()
    assert torch.allclose(final.model, task.layout.flatten(module), rtol=0, atol=1e-12)
    assert all(r.events[0] == "server round" and len(r.asked) == 0 for r in records[1:])
    assert records[-1].events == ("server round", NOBODY_EVER)


def test_identity_in_between_the_two_interleave_and_clients_are_drawn_as_without_help() -> None:
    task = helped_task()
    _, base = run(task, PLAN)
    _, records = run(task, plan_with(client_prob=0.5))
    mine = [r for r in records[1:] if r.events != ("server round",)]
    assert 0 < len(mine) < 12
    for record in mine:
        assert np.array_equal(record.asked, base[record.round].asked)
    assert all(NOBODY_EVER not in r.events for r in records)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_identity_the_mixed_run_is_the_two_pure_operators_in_the_drawn_order(batch_size: int | None) -> None:
    task = helped_task()
    mixed, records = run(task, plan_with(client_prob=0.5, batch_size=batch_size, steps=2))
    server = [r.events == ("server round",) for r in records[1:]]
    assert 2 < sum(server) < 10
    state = State.start(task.layout.flatten(task.module), population_of(task))
    for round, by_server in enumerate(server, 1):
        pure = plan_with(client_prob=0.0 if by_server else 1.0, batch_size=batch_size, steps=2)
        state = run_from(state, task, replace(pure, rounds=round))
    assert torch.equal(state.model, mixed.model)


def test_property_client_rounds_are_binomial() -> None:
    task = helped_task()
    counts = [sum(len(r.asked) > 0 for r in run(task, plan_with(client_prob=0.7), seed=s)[1]) for s in range(60)]
    assert np.mean(counts) == pytest.approx(12 * 0.7, abs=4 * np.sqrt(12 * 0.21 / 60))


def test_convergence_server_samples_stand_in_for_a_client_that_never_comes() -> None:
    # clients pull to 0; the server's samples want 4, as the missing client would
    rows = [(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0, 0.0]], dtype=torch.float64))]
    held = (torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[1.0, 4.0]], dtype=torch.float64))
    task = Task(federation=from_clients(rows, server=held), module=PointModel(1), loss=losses.quadratic)
    local = SGD(lr=0.01, steps=1, batches="full")
    plan = Plan(local=local, rounds=4000, evaluate=NEVER, assist=Safari(lr=0.01, client_prob=0.5))
    final, _ = run(task, plan)
    assert float(final.model) == pytest.approx(2.0, abs=0.5)  # the even mixture of both


class Spy(Sequential):
    def __init__(self) -> None:
        super().__init__()
        self.tested: dict[Any, Any] = {}

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        self.tested |= {r.round: present(r.clients).tolist() for _, r in questions if isinstance(r, Evaluate)}
        return super().answer(questions)


def test_contract_clients_come_and_go_in_the_servers_rounds_too() -> None:
    fleet = Fleet(membership=Scheduled(arrivals={2: 3}, departures={1: 5}))
    turnover = Turnover(on_departure="exclude", reboot="vanilla")
    plan = replace(plan_with(client_prob=0.0), fleet=fleet, turnover=turnover, evaluate=Cadence(), rounds=6)
    spy = Spy()
    final, records = run(helped_task(), plan, engine=spy)
    assert records[3].events == ("client 2 arrived", "server round")
    assert records[5].events == ("client 1 left and is excluded", "server round")
    assert [r.up.tolist() for r in records[2:6]] == [[0, 1, 3, 4, 5]] + [[0, 1, 2, 3, 4, 5]] * 2 + [[0, 2, 3, 4, 5]]
    assert (spy.tested[2], spy.tested[3]) == ([0, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5])  # the test set, in that very round
    assert spy.tested[5] == [0, 2, 3, 4, 5]
    assert final.restart == 4


def test_contract_asking_a_client_that_leaves_in_a_server_round_is_billed() -> None:
    leaves, turnover = Fleet(membership=Scheduled(departures={1: 3})), Turnover(on_departure="auto")
    plan = replace(plan_with(client_prob=0.0), fleet=leaves, turnover=turnover, rounds=4)
    task = helped_task()
    _, records = run(task, plan)
    size, held = task.federation.sizes[1], len(server_of(task.federation))
    assert records[3].costs.probe_evaluations == 2 * size
    assert records[3].costs.gradient_evaluations == held + size
    assert records[2].costs.gradient_evaluations == held
    assert records[3].costs.bytes_down > 0


def test_golden_q_from_theory() -> None:
    assert Safari(lr=0.1, client_prob="theory", participants=5, local_steps=4).q == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"client_prob": 1.5}, r"client_prob in \[0, 1\]; got 1\.5"),
        ({"client_prob": "theory"}, "needs participants and local_steps"),
        ({"client_prob": "theory", "participants": -3, "local_steps": 5}, "participants >= 1; got -3"),
        ({"steps": 0}, r"steps >= 1; got 0\. Change assist\.steps"),
        ({"batch_size": 0}, r"batch_size >= 1; got 0\. Change assist\.batch_size"),
        ({"lr": -0.1}, r"lr > 0; got -0\.1\. Change assist\.lr"),
        ({"lr": float("inf")}, r"lr <= 1,000,000,000,000; got inf"),
    ],
)
def test_error_settings(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Safari(**{"lr": 0.1, **settings})


def test_error_no_samples_at_the_server() -> None:
    task = blob_task(6)
    with pytest.raises(ConfigError, match=r"Safari needs samples at the server.*data\.server_samples"):
        run(task, plan_with(client_prob=0.5))
