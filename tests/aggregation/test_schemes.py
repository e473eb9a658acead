"""Schemes A, B and C: T11, cases worked by hand, and where each ends on quadratics."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.aggregation_inputs import facts
from tests.support.runs import run
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg, FedNova, SchemeA, SchemeB, SchemeC
from turnout.array_types import Floats, Ids
from turnout.coordinator import Cadence, Plan
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.protocols import Aggregation, View
from turnout.selection import Uniform
from turnout.server import SGD as ServerSGD

NEVER = Cadence(every=10**9)
SCHEMES = (SchemeA(), SchemeB(), SchemeC())


class Some:
    """Each client its own number of completed steps."""

    def __init__(self, *done: Any) -> None:
        self.completed = np.array(done)

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        return self.completed[clients]


def test_golden_three_clients_by_hand() -> None:
    # E = 6, s = (6, 3, 6), p = (½, ¼, ¼), N = 3
    three = facts([0, 1, 2], weights=[0.5, 0.25, 0.25], steps=[6, 3, 6], asked=[6, 6, 6])
    assert SchemeA().coefficients(three) == pytest.approx([3 * 0.5 / 2, 0, 3 * 0.25 / 2])
    assert SchemeB().coefficients(three) == pytest.approx([0.5, 0.25, 0.25])
    assert SchemeC().coefficients(three) == pytest.approx([0.5, 0.5, 0.25])


def test_golden_one_client_with_all_the_data_is_scaled_by_what_it_left_undone() -> None:
    one = facts([0], weights=[1.0], steps=[2], asked=[10])
    assert SchemeC().coefficients(one) == pytest.approx([5.0])
    assert SchemeA().coefficients(one) == pytest.approx([0.0])


def test_golden_absent_clients_keep_their_share_of_the_objective() -> None:
    # four clients, two of them up and complete: B and C do not hand their share on, A speaks for N
    two = facts([1, 3], weights=[0.1, 0.3], steps=[5, 5], total=4)
    assert SchemeB().coefficients(two) == pytest.approx([0.1, 0.3])
    assert SchemeC().coefficients(two) == pytest.approx([0.1, 0.3])
    assert SchemeA().coefficients(two) == pytest.approx([4 * 0.1 / 2, 4 * 0.3 / 2])


@given(st.lists(st.tuples(st.floats(0.01, 1), st.booleans()), min_size=1, max_size=8))
def test_property_the_coefficients_of_scheme_a_sum_to_the_mean_share_of_the_complete(
    pairs: list[tuple[float, bool]],
) -> None:
    p = np.array([weight for weight, _ in pairs])
    p, full = p / p.sum(), np.array([f for _, f in pairs])
    some = facts(np.arange(len(p)), weights=p, steps=np.where(full, 5, 2), asked=np.full(len(p), 5))
    expected = len(p) * p[full].mean() if full.any() else 0.0
    assert SchemeA().coefficients(some).sum() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: type(s).__name__)
def test_identity_all_complete_is_fedavg(scheme: Aggregation, any_engine: Callable[[], Engine]) -> None:
    task = blob_task(5)
    plan = Plan(local=SGD(lr=0.1, batch_size=4, epochs=2), rounds=3, evaluate=NEVER)
    average, _ = run(task, plan, engine=any_engine())
    mine, _ = run(task, replace(plan, aggregation=scheme), engine=any_engine())
    assert torch.allclose(average.model, mine.model, rtol=0, atol=1e-12)
    assert not torch.allclose(mine.model, task.layout.flatten(task.module))


def test_identity_scheme_b_is_fedavg_with_the_steps_that_were_done() -> None:
    task, work = blob_task(3), Some(1, 4, 2)
    plan = Plan(local=SGD(lr=0.1, batch_size=4, steps=5), rounds=3, fleet=Fleet(work=work), evaluate=NEVER)
    mine, _ = run(task, replace(plan, aggregation=SchemeB()))
    average, _ = run(task, plan)  # all three answer, so FedAvg's shares are p_k too
    assert torch.allclose(mine.model, average.model, rtol=0, atol=1e-12)


def test_identity_scheme_c_is_fednovas_direction_stretched_to_all_the_work() -> None:
    task, work, done = blob_task(3), Some(1, 4, 2), np.array([1, 4, 2])
    p = task.federation.sizes / task.federation.sizes.sum()
    plan = Plan(local=SGD(lr=0.1, batch_size=4, steps=5), rounds=2, fleet=Fleet(work=work), evaluate=NEVER)
    mine, _ = run(task, replace(plan, aggregation=SchemeC()))
    theirs, _ = run(task, replace(plan, aggregation=FedNova(), server=ServerSGD(lr=float(5 / (p @ done)))))
    assert torch.allclose(mine.model, theirs.model, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: type(s).__name__)
def test_identity_nobody_doing_anything_changes_nothing(scheme: Aggregation) -> None:
    task = blob_task(3)
    plan = Plan(local=SGD(lr=0.1, steps=2), rounds=2, aggregation=scheme, fleet=Fleet(work=Some(0, 0, 0)))
    final, records = run(task, plan)
    assert torch.equal(final.model, task.layout.flatten(task.module))
    assert records[-1].events[0] == "nobody answered"


def test_identity_scheme_a_discards_a_round_in_which_nobody_finishes() -> None:
    task = blob_task(3)
    plan = Plan(local=SGD(lr=0.1, steps=5), rounds=2, aggregation=SchemeA(), fleet=Fleet(work=Some(4, 1, 2)))
    final, records = run(task, plan)
    assert torch.equal(final.model, task.layout.flatten(task.module))
    assert records[-1].coefficients.tolist() == [0.0, 0.0, 0.0]
    assert records[-1].answered.tolist() == [0, 1, 2]  # they did answer, and the record says so


H, LINEAR, SIZES = np.array([1.0, 2.0, 0.5]), np.array([[1.0, 0.0], [0.0, 4.0], [-1.0, 1.0]]), np.array([2, 3, 5])
P, DONE = SIZES / SIZES.sum(), np.array([1, 7, 7])
OPTIMUM = P @ LINEAR / (P @ H)


def limit_of(scheme: Aggregation, lr: float) -> Any:
    """Where a scheme ends when the first client does one step of seven; a server rate only makes it quicker."""
    plan = Plan(
        local=SGD(lr=lr, steps=7, batches="full"),
        rounds=60,
        fleet=Fleet(work=Some(*DONE)),
        aggregation=scheme,
        server=ServerSGD(lr=0.08 / lr),
        evaluate=NEVER,
    )
    return run(quadratic_task(H.tolist(), LINEAR.tolist(), SIZES.tolist()), plan)[0].model.numpy()


def minimiser(weights: Floats) -> Floats:
    result: Floats = weights @ LINEAR / (weights @ H)
    return result


def test_convergence_scheme_c_tends_to_the_optimum_with_the_rate() -> None:
    far, near = (np.linalg.norm(limit_of(SchemeC(), lr) - OPTIMUM) for lr in (0.002, 0.001))
    assert near == pytest.approx(far / 2, rel=0.02)  # first order in the rate
    assert near < 0.01


def test_convergence_scheme_b_tends_to_the_minimiser_weighted_by_work() -> None:
    leaning = minimiser(P * DONE)
    assert limit_of(SchemeB(), 0.001) == pytest.approx(leaning, abs=0.01)
    assert np.linalg.norm(leaning - OPTIMUM) > 0.2


def test_convergence_scheme_a_tends_to_the_minimiser_of_those_who_finish() -> None:
    finishers = minimiser(P * (DONE == 7))
    assert limit_of(SchemeA(), 0.001) == pytest.approx(finishers, abs=0.01)
    assert np.linalg.norm(finishers - OPTIMUM) > 0.2


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: type(s).__name__)
def test_error_a_cohort_is_refused_with_the_way_out(scheme: Aggregation) -> None:
    name = type(scheme).__name__
    plan = Plan(local=SGD(lr=0.1, steps=1), rounds=1, selection=Uniform(cohort_size=2), aggregation=scheme)
    with pytest.raises(ConfigError, match=rf"{name} needs every available client.*got cohort_size = 2\. Leave"):
        run(blob_task(4), plan)


def test_contract_clients_that_are_down_are_as_if_they_had_done_nothing() -> None:
    task, fleet = blob_task(6), Fleet(availability=Bernoulli(prob=0.5))
    plan = Plan(local=SGD(lr=0.1, steps=2), rounds=4, fleet=fleet, aggregation=SchemeC(), evaluate=NEVER)
    _, records = run(task, plan)
    p = task.federation.sizes / task.federation.sizes.sum()
    assert any(0 < len(r.asked) < 6 for r in records)
    for record in records[1:]:
        assert record.coefficients == pytest.approx(p[record.asked])


def test_contract_a_federation_of_equals_is_the_same_under_every_scheme() -> None:
    equal = facts([0, 1, 2], steps=[4, 4, 4])
    for scheme in SCHEMES:
        assert scheme.coefficients(equal) == pytest.approx(FedAvg().coefficients(equal))
