"""MIFA: its part of T12, waiting, changing rates, and where it ends on quadratics."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.aggregation_inputs import combined, facts, view
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import MIFA, FedAvg
from turnout.aggregation.fedavg import Weighting
from turnout.array_types import Ids
from turnout.coordinator import Cadence, Plan
from turnout.engine import Engine
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.local.schedule import Inverse
from turnout.protocols import Server, View
from turnout.selection import Uniform
from turnout.server import FedAdam, FedAvgM, SlowMomentum

NEVER = Cadence(every=10**9)
HERE = view([1, 2, 3, 4], 1)


def test_golden_two_rounds_by_hand() -> None:
    # N = 4, η = 0.1: clients 0 and 1 send (8, 4), G = (80, 40, 0, 0), u = 0.1·120/4 = 3;
    # then client 1 sends 3 at η = 0.05, G = (80, 60, 0, 0), u = 0.05·140/4 = 1¾
    first = combined(MIFA(), facts([0, 1], total=4), [8.0, 4.0], HERE)
    assert first.direction.item() == pytest.approx(3.0, abs=1e-12)
    assert first.coefficients == pytest.approx([0.25, 0.25])
    second = combined(MIFA(), facts([1], total=4, lr=0.05), [3.0], HERE, first.memory)
    assert second.direction.item() == pytest.approx(1.75, abs=1e-12)


def test_golden_by_data_each_memory_counts_with_its_share() -> None:
    got = combined(MIFA(weighting="ratio"), facts([0, 3], total=4), [10.0, 20.0], HERE)
    assert got.direction.item() == pytest.approx(0.1 * 10 + 0.4 * 20, abs=1e-12)


COHORTS = st.lists(st.tuples(st.sets(st.integers(0, 3), min_size=1), st.floats(-9, 9)), min_size=1, max_size=6)


@given(COHORTS)
def test_identity_fedvarp_with_one_over_n(rounds: list[tuple[set[int], float]]) -> None:
    # u = (1/N) Σ_S (Δ_i − y_i) + ȳ_old, with y_j the last change of each client
    memory: dict[str, Any]
    last, memory = np.zeros(4), {}
    for clients, value in rounds:
        s = sorted(clients)
        fresh = value * (1 + np.array(s))
        expected = (fresh - last[s]).sum() / 4 + last.mean()
        got = combined(MIFA(), facts(s, total=4), fresh, HERE, memory)
        last[s], memory = fresh, got.memory
        assert got.direction.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("mifa", "fedavg"), [("mean", "mean"), ("ratio", "ratio")])
@pytest.mark.parametrize("wait", [False, True])
def test_identity_everyone_available_is_fedavg(
    mifa: Any, fedavg: Weighting, wait: bool, any_engine: Callable[[], Engine]
) -> None:
    task = blob_task(5)
    plan = Plan(local=SGD(lr=0.1, batch_size=4, epochs=1), rounds=3, evaluate=NEVER)
    theirs, _ = run(task, replace(plan, aggregation=FedAvg(weighting=fedavg)), engine=any_engine())
    mine, _ = run(task, replace(plan, aggregation=MIFA(weighting=mifa, wait=wait)), engine=any_engine())
    assert torch.allclose(mine.model, theirs.model, rtol=0, atol=1e-12)


def test_contract_waiting_moves_nothing_until_everyone_was_heard_and_then_uses_all() -> None:
    task = blob_task(6)
    plan = Plan(
        local=SGD(lr=0.1, steps=2, batches="full"),
        rounds=12,
        selection=Uniform(cohort_size=2),
        aggregation=MIFA(wait=True),
        evaluate=NEVER,
    )
    _, records = run(task, plan)
    heard, missing = set(), []
    for record in records[1:]:
        heard |= set(record.answered.tolist())
        missing.append(6 - len(heard))
        assert record.metrics["waiting_for"] == missing[-1]
        assert (record.coefficients == 0).all() == (missing[-1] > 0)
    first = missing.index(0) + 1
    assert first > 3  # it did have to wait
    still, _ = run(task, replace(plan, rounds=first - 1))
    start = task.layout.flatten(task.module)
    assert torch.equal(still.model, start)
    # all changes were made at the same model: the first step is FedAvg over everyone
    moved, _ = run(task, replace(plan, rounds=first))
    everyone, _ = run(task, replace(plan, rounds=1, selection=Uniform(), aggregation=FedAvg(weighting="mean")))
    assert torch.allclose(moved.model, everyone.model, rtol=0, atol=1e-12)


def test_contract_only_clients_of_the_objective_are_waited_for() -> None:
    here = view([1, 2, 3, 4], 1, counted=[True, True, False, False])
    got = combined(MIFA(wait=True), facts([0, 1], total=2), [8.0, 4.0], here)
    assert got.metrics["waiting_for"] == 0
    assert got.direction.item() == pytest.approx(6.0, abs=1e-12)


def test_contract_without_waiting_a_client_never_heard_counts_as_nothing() -> None:
    class Never:
        def up(self, view: View) -> Ids:
            return np.array([0, 1])

    task = quadratic_task([1.0, 1.0, 1.0], [[3.0], [6.0], [99.0]], [1, 1, 1])
    plan = Plan(
        local=SGD(lr=0.5, steps=1, batches="full"),
        rounds=1,
        fleet=Fleet(availability=Never()),
        aggregation=MIFA(),
        evaluate=NEVER,
    )
    final, records = run(task, plan)
    assert final.model.item() == pytest.approx(0.5 * (3 + 6) / 3, abs=1e-12)
    assert records[-1].metrics["waiting_for"] == 1
    assert records[-1].metrics["memory_bytes"] == 3 * 8 + 8


def test_convergence_reaches_the_optimum_under_unequal_availability_where_fedavg_leans() -> None:
    h, e = np.array([1.0, 2.0, 0.5]), np.array([[4.0], [-8.0], [3.0]])
    plan = Plan(
        local=SGD(lr=0.1, steps=1, batches="full"),
        rounds=300,
        fleet=Fleet(availability=Bernoulli(prob=(0.9, 0.2, 0.5))),
        aggregation=MIFA(),
        evaluate=NEVER,
    )
    task, optimum = quadratic_task(h.tolist(), e.tolist(), [1, 1, 1]), e.mean() / h.mean()
    assert run(task, plan)[0].model.item() == pytest.approx(optimum, abs=1e-5)
    assert abs(run(task, replace(plan, aggregation=FedAvg()))[0].model.item() - optimum) > 0.1


class UpIn:
    """Up in these rounds, everyone named."""

    def __init__(self, by_round: dict[int, Sequence[int]]) -> None:
        self.by_round = by_round

    def up(self, view: View) -> Ids:
        return np.array(self.by_round.get(view.round, ()), dtype=np.int64)


TWO = quadratic_task([1.0, 1.0], [[4.0], [8.0]], [1, 1])


def two_clients(by_round: dict[int, Sequence[int]], rounds: int, **more: Any) -> Plan:
    """Two clients at 4 and 8, with one exact step of 0.5 each, up in these rounds."""
    local = more.pop("local", SGD(lr=0.5, steps=1, batches="full"))
    fleet = Fleet(availability=UpIn(by_round))
    return Plan(**{"local": local, "rounds": rounds, "fleet": fleet, "aggregation": MIFA(), "evaluate": NEVER} | more)


def test_golden_a_round_with_nobody_steps_on_what_is_remembered() -> None:
    # x = 0: G = (−4, −8), u = 0.5·(−6) = −3, x = 3; nobody in rounds 2 and 3: the same step again, x = 6, 9
    assert [run(TWO, two_clients({1: (0, 1)}, rounds))[0].model.item() for rounds in (1, 2, 3)] == [3.0, 6.0, 9.0]
    # and at the round's own rate: η_l / 2 in round 2, η_l / 3 in round 3
    falling = SGD(lr=0.5, schedule=Inverse(), steps=1, batches="full")
    final, records = run(TWO, two_clients({1: (0, 1)}, 3, local=falling))
    assert final.model.item() == pytest.approx(3 + 3 / 2 + 3 / 3)
    assert records[2].events == ("nobody was up",)
    assert len(records[2].answered) == 0


def test_contract_before_anyone_was_heard_there_is_nothing_to_step_on() -> None:
    final, _ = run(TWO, two_clients({3: (0, 1)}, 2, server=FedAdam()))
    assert final.model.item() == 0.0
    assert final.server == {}


@pytest.mark.parametrize("server", [FedAvgM(momentum=0.9), FedAdam(), SlowMomentum()])
def test_contract_waiting_moves_neither_the_model_nor_the_memory_of_the_server_rule(server: Server) -> None:
    waiting = {"aggregation": MIFA(wait=True), "server": server}
    still, records = run(TWO, two_clients({1: (0,), 2: (0,), 3: ()}, 3, **waiting))
    assert still.model.item() == 0.0
    assert still.server == {}
    assert [record.metrics["waiting_for"] for record in records[1:]] == [1.0, 1.0, 1.0]
    # the first step is as if it were the first round of the run
    waited, _ = run(TWO, two_clients({1: (0,), 2: (0,), 4: (1,)}, 4, **waiting))
    at_once, _ = run(TWO, two_clients({1: (0, 1)}, 1, **waiting))
    assert torch.equal(waited.model, at_once.model)
    assert waited.server.keys() == at_once.server.keys()
    assert all(np.allclose(waited.server[name], at_once.server[name]) for name in at_once.server)
