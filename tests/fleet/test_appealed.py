"""Appealed: who is up follows from what the model is worth to clients, which the simulation measures."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.fleet_claims import view_of
from tests.support.personal_runs import quadratics
from tests.support.runs import run
from tests.support.saved_states import again as saved_and_restored
from tests.support.server_steps import close
from tests.support.several_runs import network
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import Appeal, FedAvg
from turnout.asynchrony import FedBuff
from turnout.coordinator import Cadence, Plan, State
from turnout.coordinator.compatibility import check_buffers, problems, problems_with
from turnout.engine import Engine, Sequential, Vectorised
from turnout.errors import ConfigError
from turnout.fleet import Always, Appealed, Bernoulli, Deadline, Fleet, Never, Scheduled
from turnout.local import SGD
from turnout.protocols import Population
from turnout.requirement import Appeal as Measured
from turnout.selection import Uniform
from turnout.streams import Streams
from turnout.study.driver import Run, drive

LOCAL = SGD(lr=0.1, epochs=1, batch_size=4)


def appeal_of(unserved: list[int]) -> Measured:
    zeros = np.zeros(len(unserved))
    return Measured(losses=zeros, required=zeros, unserved_rounds=np.array(unserved))


@pytest.mark.parametrize(
    ("warmup", "patience", "up"),
    [
        (0, 0, [0]),
        (0, 1, [0, 1]),
        (0, 3, [0, 1, 2]),
        (5, 0, [0, 1, 2, 3]),  # round 5 is still warm-up
        (4, 0, [0]),  # the first round after it
        (4, 1, [0, 1, 2, 3]),
        (2, 2, [0, 1]),
    ],
)
def test_golden_patience_counts_rounds_after_the_warm_up(warmup: int, patience: int, up: list[int]) -> None:
    view = replace(view_of(4, 5), appeal=appeal_of([0, 1, 3, 9]))
    assert Appealed(warmup_rounds=warmup, patience=patience).up(view).tolist() == up


def test_golden_the_loyal_stay_and_another_rule_may_still_have_them_away() -> None:
    view = replace(view_of(400, 5), appeal=appeal_of([0, 9] * 200))
    loyal = Appealed(warmup_rounds=0, loyal=0.3).up(view)
    odd = loyal[loyal % 2 == 1]
    assert set(range(0, 400, 2)) <= set(loyal.tolist())
    assert 40 < len(odd) < 80
    assert np.array_equal(Appealed(warmup_rounds=0, loyal=0.3).up(replace(view, round=9)), loyal)
    others = Bernoulli(prob=0.5)
    both = Appealed(warmup_rounds=0, loyal=0.3, others=others).up(view)
    assert both.tolist() == np.intersect1d(loyal, others.up(view)).tolist()


def two_groups(sizes: list[int] | None = None) -> Any:
    """Return three clients at 1 and one at −3: F = ½(x − a)² − ½a²."""
    return quadratic_task([1.0] * 4, [[1.0], [1.0], [1.0], [-3.0]], sizes or [1] * 4)


def test_golden_a_client_that_the_model_does_not_serve_leaves_and_returns() -> None:
    # requirement: −0.4 within 0.447 of the minimum at 1; −1 at x < −0.354 for the client at −3
    rule = Appealed(requirement=(-0.4, -0.4, -0.4, -1.0), warmup_rounds=2)
    plan = Plan(local=SGD(lr=0.5, steps=1, batches="full"), rounds=8, fleet=Fleet(availability=rule))
    _, records = run(two_groups(), plan)
    up = [record.up.tolist() for record in records[1:]]
    assert up[:2] == [[0, 1, 2, 3]] * 2  # warm-up: x = 0
    assert up[2:] == [[]] * 6  # x = 0 for ever: the means cancel, and nobody is served
    assert [record.metrics["appeal"] for record in records[1:]] == [0.0] * 8
    assert "appeal" not in records[0].metrics

    patient = replace(plan, fleet=Fleet(availability=replace(rule, requirement=(-0.4, -0.4, -0.4, 5.0))))
    _, records = run(two_groups(), patient)
    assert [record.up.tolist() for record in records[3:5]] == [[3], [3]]  # only the last is served, and pulls x away
    assert records[5].metrics["appeal"] == 0.25

    start = torch.tensor([0.9], dtype=torch.float64)
    state = State.start(start, Population.of(np.ones(4, dtype=np.int64)))
    at_once = replace(plan, fleet=Fleet(availability=replace(rule, warmup_rounds=0)))
    served, records = run(two_groups(), at_once, state=state)
    assert records[1].metrics["appeal"] == 0.75
    assert records[-1].up.tolist() == [0, 1, 2]
    assert float(served.model) == pytest.approx(1.0, abs=0.01)


def test_golden_a_client_joins_when_the_model_comes_to_serve_it() -> None:
    # clients 0 to 2 pull x from 0 to 1: x = 1 − 2^−t. Client 3, with F = ½x² − x, requires less than −0.4: x > 0.553
    task = quadratic_task([1.0] * 4, [[1.0]] * 4, [1] * 4)
    rule = Appealed(requirement=(9.0, 9.0, 9.0, -0.4), warmup_rounds=0)
    plan = Plan(local=SGD(lr=0.5, steps=1, batches="full"), rounds=4, fleet=Fleet(availability=rule))
    _, records = run(task, plan)
    assert [record.up.tolist() for record in records[1:]] == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert [record.metrics["appeal"] for record in records[1:]] == [0.75, 0.75, 1.0, 1.0]


def test_golden_patience_of_an_arrival_begins_when_it_joins() -> None:
    task = quadratic_task([1.0] * 4, [[1.0]] * 4, [1] * 4)
    rule = Appealed(requirement=(9.0, 9.0, 9.0, -9.0), warmup_rounds=0, patience=2)  # the last is never served
    fleet = Fleet(availability=rule, membership=Scheduled(arrivals={3: 6}))
    _, records = run(task, Plan(local=SGD(lr=0.5, steps=1, batches="full"), rounds=9, fleet=fleet))
    assert [record.round for record in records if 3 in record.up] == [6, 7]


def test_golden_the_preferred_model_is_the_better_of_two_on_each_hold_out() -> None:
    task = network()
    people = replace(Population.of(task.federation.sizes), holdout_sizes=task.federation.holdout.sizes)  # type: ignore[union-attr]
    state = State.start(task.layout.flatten(task.module), people)
    plan = replace(plan_of(loyal=1.0), evaluate=Cadence(clients_every=4))
    run_ = Run(index=0, task=task, plan=plan, state=state, streams=Streams(0), population=people)
    records: list[Any] = []
    drive([run_], Sequential(), lambda batch: records.extend(record for _, record in batch))
    shared, own = records[-1].client_accuracy, records[-1].personal
    assert np.array_equal(own["preferred accuracy"], np.maximum(shared, own["alone accuracy"]))
    assert np.array_equal(own["alone accuracy"], records[4].personal["alone accuracy"])  # trained once
    assert records[-1].metrics["preferred_accuracy"] == pytest.approx(own["preferred accuracy"].mean())
    assert "preferred_accuracy" not in records[0].metrics


def test_golden_a_client_that_diverges_alone_would_use_the_first_model() -> None:
    plan = replace(plan_of(loyal=1.0, epochs=2000, lr=1e3), local=SGD(lr=0.1, steps=1, batches="full"))
    _, records = run(quadratics(), replace(plan, rounds=1, evaluate=Cadence(clients_every=1)))
    assert records[1].personal["alone loss"].tolist() == [0.0] * 3  # F_k(0), on the hold-out


def plan_of(**settings: Any) -> Plan:
    return Plan(
        local=LOCAL,
        rounds=8,
        fleet=Fleet(availability=Appealed(**{"epochs": 3, "warmup_rounds": 2, **settings})),
        selection=Uniform(),
    )


@pytest.mark.parametrize(
    "settings", [{"loyal": 1.0}, {"warmup_rounds": 8}, {"patience": 8}], ids=["loyal", "warm-up", "patience"]
)
def test_identity_a_rule_that_lets_nobody_go_only_measures(settings: dict[str, Any]) -> None:
    task = blob_task()
    measured, records = run(task, plan_of(**settings))
    plain, others = run(task, replace(plan_of(), fleet=Fleet(availability=Always())))
    assert torch.equal(measured.model, plain.model)
    assert all(0 <= record.metrics["appeal"] <= 1 for record in records[1:])
    sizes = int(task.federation.sizes.sum())
    pairs = list(zip(records, others, strict=True))
    extra = [one.costs.probe_evaluations - two.costs.probe_evaluations for one, two in pairs]
    assert extra == [0, 2 * sizes, *[sizes] * 7]  # in the first round, also the models trained alone
    trained = [one.costs.gradient_evaluations - two.costs.gradient_evaluations for one, two in pairs]
    assert trained == [0, 3 * sizes, *[0] * 7]


def test_contract_both_rules_find_the_same_requirement() -> None:
    plan = replace(plan_of(loyal=1.0), aggregation=Appeal(epochs=3))
    final, records = run(blob_task(), plan)
    assert close(final.world["appeal required"], final.aggregation["required"])
    assert [r.metrics["appeal"] for r in records[1:]] == [r.metrics["cohort_appeal"] for r in records[1:]]


@pytest.mark.parametrize("engine", [Sequential, lambda: Vectorised("cpu", block=3, threads=1)])
def test_contract_a_run_resumes_exactly_on_both_engines(engine: Callable[[], Engine]) -> None:
    task, plan = blob_task(), plan_of(patience=1)
    whole, records = run(task, plan, engine=engine())
    assert any(0 < len(record.up) < 8 for record in records[3:])
    for record in records[1:-1]:
        again, rest = run(task, plan, state=saved_and_restored(record.state), engine=engine())
        assert torch.equal(again.model, whole.model)
        assert [r.up.tolist() for r in rest] == [r.up.tolist() for r in records[record.round + 1 :]]


def test_engine_the_engines_agree(any_engine: Callable[[], Engine]) -> None:
    final, records = run(blob_task(), plan_of(patience=1), engine=any_engine())
    expected, others = run(blob_task(), plan_of(patience=1))
    assert close(final.model, expected.model)
    assert [r.up.tolist() for r in records] == [r.up.tolist() for r in others]


def test_contract_it_works_without_waiting_with_arrivals_and_inside_never() -> None:
    plan = plan_of(patience=2)
    rule = plan.fleet.availability
    buffered = replace(
        plan, asynchrony=FedBuff(buffer_size=2, concurrency=4), fleet=Fleet(availability=rule, clock=Deadline())
    )
    arriving = replace(plan, fleet=Fleet(availability=rule, membership=Scheduled(arrivals={6: 3, 7: 3})))
    never = replace(plan, fleet=Fleet(availability=Never(clients=(0,), others=rule)))
    for each in (buffered, arriving, never):
        assert list(problems(each)) == []
        _, records = run(blob_task(), each)
        assert all("appeal" in record.metrics for record in records[1:])
    final, records = run(blob_task(), arriving)
    assert final.world["appeal is_known"].all()
    assert all(6 not in record.up for record in records[:3])
    assert 6 in records[3].up


def test_convergence_appeal_keeps_more_clients_than_the_mean() -> None:
    # four clients at 1, two at −6: the mean of all serves nobody, and MaxFL serves the four
    task = quadratic_task([1.0] * 6, [[1.0]] * 4 + [[-6.0]] * 2, [1] * 6)
    rule = Appealed(requirement=(-0.3, -0.3, -0.3, -0.3, -17.0, -17.0), warmup_rounds=10)
    plan = Plan(local=SGD(lr=0.3, steps=1, batches="full"), rounds=30, fleet=Fleet(availability=rule))
    required = rule.requirement
    _, mean = run(task, replace(plan, aggregation=FedAvg()))
    _, appeal = run(task, replace(plan, aggregation=Appeal(requirement=required)))
    assert mean[-1].metrics["appeal"] == 0
    assert appeal[-1].metrics["appeal"] == pytest.approx(4 / 6)
    assert appeal[-1].up.tolist() == [0, 1, 2, 3]


def test_error_two_requirements_for_one_client() -> None:
    plan = Plan(local=LOCAL, rounds=1, fleet=Fleet(availability=Appealed(others=Appealed(requirement=1.0))))
    (problem,) = problems_with(plan, Population.of(np.ones(3, dtype=np.int64)))
    assert "a client has one requirement. Change fleet.availability.others" in problem.message


def test_error_a_list_of_the_wrong_length() -> None:
    plan = Plan(local=LOCAL, rounds=1, fleet=Fleet(availability=Appealed(requirement=(1.0, 2.0))))
    (problem,) = problems_with(plan, Population.of(np.ones(3, dtype=np.int64)))
    assert "Appealed needs one requirement for all clients, or one per client; got 2 for 3 clients" in problem.message


def test_error_running_statistics_have_no_place_in_models_trained_alone() -> None:
    for plan in (plan_of(), Plan(local=LOCAL, rounds=1, aggregation=Appeal())):
        with pytest.raises(ConfigError, match=r'requirement = "alone" cannot keep running statistics'):
            check_buffers(plan, True)
    check_buffers(plan_of(requirement=1.0, epochs=5), True)
