"""Optimal client sampling: the probabilities in closed form and by iteration, unbiasedness, and reuse of the work."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.optional import present
from tests.support.runs import run
from tests.support.selection_asking import Desk, chosen, view
from tests.support.selection_claims import claim_sending_is_unbiased
from tests.support.tasks import blob_task, quadratic_task
from turnout.aggregation import FedAvg
from turnout.aggregation.fedavg import Weighting
from turnout.array_types import Floats
from turnout.coordinator import Cadence, Plan
from turnout.engine import Sequential
from turnout.engine.task import Question
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.protocols import Selection
from turnout.requests import Answer, Fit
from turnout.selection import Optimal, Uniform
from turnout.selection.optimal import sending_probabilities

NEVER = Cadence(every=10**9)
norms_and_budget = st.lists(st.floats(0, 100), min_size=1, max_size=10).flatmap(
    lambda norms: st.tuples(st.just(np.array(norms)), st.integers(1, len(norms)))
)


def plan_of(rule: Selection, rounds: int = 3, weighting: Weighting = "ht") -> Plan:
    local = SGD(lr=0.1, batch_size=4, epochs=1)
    return Plan(local=local, rounds=rounds, selection=rule, aggregation=FedAvg(weighting=weighting), evaluate=NEVER)


def test_golden_four_norms_by_hand() -> None:
    # U = (1, 2, 3, 10), m = 2, n = 4: l = 4 needs 2 ≤ 16/10, which fails; l = 3 needs 1 ≤ 6/3: q = U/6, and 1
    found = sending_probabilities(np.array([3.0, 1.0, 10.0, 2.0]), 2)
    assert np.allclose(found, [1 / 2, 1 / 6, 1, 1 / 3], rtol=0, atol=1e-15)
    # one round of rescaling: m U / ΣU = (3/8, 1/8, 1, 1/4), then C = (2 − 4 + 3) / (3/4) = 4/3
    assert np.allclose(
        sending_probabilities(np.array([3.0, 1.0, 10.0, 2.0]), 2, iterations=1), found, rtol=0, atol=1e-15
    )


@pytest.mark.parametrize("seed", range(200))
def test_identity_exact_is_iterative(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    budget = int(rng.integers(1, n + 1))
    norms = rng.lognormal(sigma=rng.choice([0.1, 1.0, 3.0]), size=n)
    exact, iterative = sending_probabilities(norms, budget), sending_probabilities(norms, budget, iterations=n)
    assert np.allclose(exact, iterative, rtol=0, atol=1e-9)


@given(norms_and_budget)
def test_property_probabilities_sum_to_the_budget_and_grow_with_the_norm(case: tuple[Floats, int]) -> None:
    norms, budget = case
    q = sending_probabilities(norms, budget)
    assert ((q >= 0) & (q <= 1)).all()
    assert q.sum() == pytest.approx(budget, rel=1e-9)
    assert (np.diff(q[np.argsort(norms)]) >= -1e-12).all()


@given(norms_and_budget, st.integers(0, 10**6))
def test_property_no_other_probabilities_have_a_smaller_variance(case: tuple[Floats, int], seed: int) -> None:
    norms, budget = case
    q = sending_probabilities(norms, budget)
    moved = norms > 1e-6
    other = np.random.default_rng(seed).uniform(0.02, 1, len(norms))
    other *= min(1.0, budget / other.sum())  # feasible: Σ ≤ m, each ≤ 1
    variance, worse = ((norms[moved] ** 2 / which[moved]).sum() for which in (q, other))
    assert variance <= worse * (1 + 1e-9) + 1e-9


@given(st.integers(1, 12), st.floats(0, 50), st.data())
def test_identity_equal_norms_send_alike_and_the_whole_budget_sends_all(
    n: int, norm: float, data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, n))
    for iterations in (None, 4):
        assert np.allclose(sending_probabilities(np.full(n, norm), budget, iterations), budget / n, rtol=0, atol=1e-12)
        ragged = np.arange(n, dtype=np.float64) * norm
        assert (sending_probabilities(ragged, n, iterations) == 1).all()


def test_golden_clients_that_did_not_move_share_what_is_left() -> None:
    assert sending_probabilities(np.array([0.0, 5.0, 0.0]), 2).tolist() == [0.5, 1.0, 0.5]
    assert sending_probabilities(np.array([0.0, 5.0, 5.0]), 1).tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("ways", ["exact", "iterative"])
@pytest.mark.parametrize("trains", [4, 6])
def test_property_the_step_is_unbiased(ways: Any, trains: int) -> None:
    claim_sending_is_unbiased(Optimal(cohort_size=2, pool_size=trains, probabilities=ways))


def test_identity_a_budget_for_all_is_uniform_selection() -> None:
    task = blob_task(8)
    expected, before = run(task, plan_of(Uniform(cohort_size=3)))
    final, after = run(task, plan_of(Optimal(cohort_size=3, pool_size=3)))
    assert [r.asked.tolist() for r in before] == [r.asked.tolist() for r in after]
    assert np.allclose(before[-1].coefficients, after[-1].coefficients)
    assert torch.allclose(final.model, expected.model, rtol=0, atol=1e-12)


def test_property_nobody_trains_twice() -> None:
    class Spy(Sequential):
        asked: list[Fit] = []  # noqa: RUF012

        def answer(self, questions: Sequence[Question]) -> list[Answer]:
            self.asked += [request for _, request in questions if isinstance(request, Fit)]
            return super().answer(questions)

    spy = Spy()
    _, records = run(blob_task(8), plan_of(Optimal(cohort_size=2, pool_size=5), rounds=4), engine=spy)
    assert [len(request.clients) for request in spy.asked] == [5] * 4
    for request, record in zip(spy.asked, records[1:], strict=True):
        assert np.isin(record.asked, request.clients).all()


def test_property_the_reported_probability_is_that_of_both_draws() -> None:
    delta = torch.ones(10, 2, dtype=torch.float64)
    choice = chosen(Optimal(cohort_size=2, pool_size=5), range(8), view([1] * 10, seed=1), Desk(delta=delta))
    assert np.allclose(present(choice.inclusion_prob), 5 / 8 * 2 / 5)


def test_property_a_norm_counts_by_the_clients_weight() -> None:
    delta = torch.ones(3, 1, dtype=torch.float64)
    counts = np.zeros(3)
    for seed in range(800):
        choice = chosen(Optimal(cohort_size=1, pool_size=3), range(3), view([1, 2, 5], seed=seed), Desk(delta=delta))
        counts[choice.clients] += 1
    assert np.allclose(counts / 800, np.array([1, 2, 5]) / 8, atol=4 * np.sqrt(0.25 / 800))


def test_contract_a_broken_change_is_rejected_on_the_record() -> None:
    task = quadratic_task([1.0, 1.0, 1.0], [[1.0], [3.0], [1e308]], [1, 1, 1])  # the third overflows
    plan = Plan(
        local=SGD(lr=10.0, steps=2, batches="full"),
        rounds=1,
        selection=Optimal(cohort_size=2, pool_size=3),
        aggregation=FedAvg(weighting="ht"),
        evaluate=NEVER,
    )
    final, records = run(task, plan)
    assert records[-1].rejected == {2: "the update is not finite"}
    assert records[-1].answered.tolist() == [0, 1]
    assert torch.isfinite(final.model).all()


def test_error_other_weightings_are_refused_with_the_reason() -> None:
    with pytest.raises(
        ConfigError, match=r'only weighting = "ht" corrects; got "ratio"\. Set aggregation\.weighting to'
    ):
        run(blob_task(4), plan_of(Optimal(cohort_size=2, pool_size=3), weighting="ratio"))


def test_error_control_variates_are_refused_with_the_reason() -> None:
    plan = Plan(
        local=SGD(lr=0.1, steps=1, control="average"),
        rounds=1,
        selection=Optimal(cohort_size=2, pool_size=3),
        aggregation=FedAvg(weighting="ht"),
    )
    with pytest.raises(ConfigError, match=r"trains clients before the round, without their control variates\. Set"):
        run(blob_task(4), plan)


def test_error_settings_out_of_range_are_named() -> None:
    with pytest.raises(ConfigError, match=r"Optimal needs pool_size >= cohort_size; got 2 < 5\. Set selection\.pool_s"):
        Optimal(cohort_size=5, pool_size=2)
    with pytest.raises(ConfigError, match=r"Optimal needs iterations >= 1; got 0\. Change selection\.iterations"):
        Optimal(cohort_size=1, pool_size=2, iterations=0)
