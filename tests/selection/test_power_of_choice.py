"""Power-of-choice and low-loss selection: who the candidates are, who of them is asked, and what it costs."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.runs import run
from tests.support.selection_asking import Desk, chosen, view
from tests.support.selection_claims import (
    UP,
    claim_batch_losses_are_the_clients_own,
    claim_the_hardest_candidates_are_chosen,
    unlike_clients,
)
from tests.support.tasks import PointModel, blob_task
from turnout import losses
from turnout.aggregation import FedAvg
from turnout.coordinator import Cadence, Plan
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.protocols import Selection
from turnout.selection import LowLoss, PowerOfChoice
from turnout.selection.low_loss import easiest
from turnout.selection.power_of_choice import hardest
from turnout.selection.sampling import candidates, weighted_sample
from turnout.streams import Streams

NEVER = Cadence(every=10**9)


def plan_of(rule: Selection, rounds: int = 4) -> Plan:
    local = SGD(lr=0.1, batch_size=4, epochs=1)
    return Plan(local=local, rounds=rounds, selection=rule, aggregation=FedAvg(weighting="mean"), evaluate=NEVER)


def test_golden_the_hardest_and_easiest_by_hand() -> None:
    clients, loss = np.array([2, 5, 6, 9]), np.array([1.0, 3.0, 3.0, 0.5])
    assert hardest(clients, loss, 1).tolist() == [5]  # a tie goes to the lowest id
    assert hardest(clients, loss, 3).tolist() == [2, 5, 6]
    assert easiest(clients, loss, 2).tolist() == [2, 9]
    assert easiest(clients, np.array([1.0, 1.0, 1.0, 2.0]), 2).tolist() == [2, 5]
    broken = np.array([np.nan, 3.0, 1.0, np.inf])
    assert hardest(clients, broken, 3).tolist() == [5, 6, 9]  # not a number is never preferred
    assert easiest(clients, broken, 3).tolist() == [5, 6, 9]


def test_property_the_hardest_candidates_are_chosen_whoever_is_up() -> None:
    claim_the_hardest_candidates_are_chosen(PowerOfChoice(cohort_size=3, pool_size=5))


def test_property_a_mini_batch_is_drawn_from_the_clients_own_samples() -> None:
    claim_batch_losses_are_the_clients_own(unlike_clients())


@pytest.mark.parametrize("rule", [PowerOfChoice, LowLoss])
def test_identity_d_equal_to_k_is_the_draw_of_candidates_and_asks_nothing(rule: type[Any]) -> None:
    desk, here = Desk(), view(range(1, 19), seed=3)
    choice = chosen(rule(cohort_size=4, pool_size=4), UP, here, desk)
    assert np.array_equal(choice.clients, candidates(UP, 4, here))
    assert not desk.asked
    assert choice.inclusion_prob is None


@pytest.mark.parametrize("estimate", ["full", "last"])
def test_identity_d_equal_to_n_is_the_largest_losses_of_all(estimate: Any) -> None:
    loss = np.random.default_rng(0).normal(size=18)
    for rule, sign in ((PowerOfChoice, -1), (LowLoss, 1)):
        choice = chosen(rule(cohort_size=3, pool_size=18, estimate=estimate), UP, view([1] * 18, last=loss), Desk(loss))
        assert choice.clients.tolist() == sorted(sorted(UP, key=lambda c, s=sign: s * loss[c])[:3])  # type: ignore[misc]


def test_identity_a_batch_of_all_samples_is_the_full_loss() -> None:
    task = blob_task(8)
    full = run(task, plan_of(PowerOfChoice(cohort_size=2, pool_size=5)))
    batch = run(task, plan_of(PowerOfChoice(cohort_size=2, pool_size=5, estimate="batch", batch_size=100)))
    assert [r.asked.tolist() for r in full[1]] == [r.asked.tolist() for r in batch[1]]
    assert torch.equal(full[0].model, batch[0].model)
    few = run(task, plan_of(PowerOfChoice(cohort_size=2, pool_size=5, estimate="batch", batch_size=1), rounds=12))
    all_ = run(task, plan_of(PowerOfChoice(cohort_size=2, pool_size=5), rounds=12))
    assert [r.asked.tolist() for r in few[1]] != [r.asked.tolist() for r in all_[1]]


def test_property_last_tries_those_never_heard_from_first_and_asks_nothing() -> None:
    last = np.array([9.0, np.nan, 8.0, np.nan, 7.0])
    for rule in (PowerOfChoice, LowLoss):
        desk = Desk()
        choice = chosen(rule(cohort_size=2, pool_size=5, estimate="last"), np.arange(5), view([1] * 5, last=last), desk)
        assert choice.clients.tolist() == [1, 3]
        assert not desk.asked
    more = chosen(PowerOfChoice(cohort_size=3, pool_size=5, estimate="last"), range(5), view([1] * 5, last=last))
    assert more.clients.tolist() == [0, 1, 3]


def test_property_last_hears_from_everyone_before_anyone_twice() -> None:
    task = blob_task(9)
    _, records = run(task, plan_of(PowerOfChoice(cohort_size=3, pool_size=9, estimate="last"), rounds=3))
    assert sorted(np.concatenate([r.asked for r in records])) == list(range(9))


def test_golden_successive_draws_are_not_draws_by_weight() -> None:
    # p = (.5, .3, .2), K = 2: π_1 = .5 + .3·.5/.7 + .2·.5/.8, and so on; the mean weights are (.420, .337, .243)
    draws, counts, here = 6000, np.zeros(3), view([5, 3, 2])
    for seed in range(draws):
        counts[candidates(np.arange(3), 2, replace(here, streams=Streams(seed)))] += 1
    expected = np.array(
        [0.5 + 0.3 * 5 / 7 + 0.2 * 5 / 8, 0.3 + 0.5 * 3 / 5 + 0.2 * 3 / 8, 0.2 + 0.5 * 2 / 5 + 0.3 * 2 / 7]
    )
    assert np.allclose(expected / 2, [0.420, 0.337, 0.243], atol=1e-3)
    assert np.allclose(counts / draws, expected, atol=4 * np.sqrt(0.25 / draws))


def test_property_who_else_is_up_does_not_change_the_order_of_two_candidates() -> None:
    here, everyone = view(range(1, 31)), np.arange(30)
    ranks = [candidates(everyone, size, here) for size in range(1, 31)]
    for smaller, larger in pairwise(ranks):
        assert np.isin(smaller, larger).all()
    few = everyone[::3]
    best = next(c for c in (candidates(everyone, s, here) for s in range(1, 31)) if np.isin(c, few).any())
    assert candidates(few, 1, here)[0] in best


def test_property_clients_without_a_share_are_drawn_last() -> None:
    here = view([1] * 6)
    shares = np.array([0.0, 1.0, 0.0, 2.0, 0.0, 3.0])
    assert weighted_sample(np.arange(6), shares, 3, here, "candidates").tolist() == [1, 3, 5]
    assert len(weighted_sample(np.arange(6), shares, 5, here, "candidates")) == 5


@given(st.lists(st.integers(-50, 50), min_size=6, max_size=6), st.integers(-1000, 1000))
def test_property_a_constant_added_to_all_losses_changes_nothing(loss: Any, shift: int) -> None:
    loss = np.array(loss, dtype=float)
    for pick in (hardest, easiest):
        assert np.array_equal(pick(np.arange(6), loss, 3), pick(np.arange(6), loss + shift, 3))


def test_golden_the_schedules_by_hand() -> None:
    halve = PowerOfChoice(cohort_size=3, pool_size=30, schedule="halve", every=5)
    assert [halve.pool_size_at(t, 100) for t in (1, 5, 6, 11, 16, 21, 99)] == [30, 30, 15, 7, 3, 3, 3]
    switch = PowerOfChoice(cohort_size=3, pool_size=30, schedule="switch")
    assert [switch.pool_size_at(t, 10) for t in (1, 5, 6, 10)] == [30, 30, 3, 3]
    assert [switch.pool_size_at(t, 1) for t in (1, 2)] == [30, 3]
    constant = PowerOfChoice(cohort_size=3, pool_size=30)
    assert {constant.pool_size_at(t, 10) for t in range(1, 11)} == {30}


def test_property_the_schedule_decides_how_many_are_asked() -> None:
    rule = PowerOfChoice(cohort_size=2, pool_size=8, schedule="halve", every=1)
    asked = []
    for round in (1, 2, 3):
        desk = Desk(loss=np.arange(18.0))
        chosen(rule, UP, view([1] * 18, round=round), desk)
        asked.append([len(q.clients) for q in desk.asked])
    assert asked == [[8], [4], []]


def test_property_probes_are_billed() -> None:
    task = blob_task(6)
    sizes, size = task.federation.sizes, 8 * len(task.layout.flatten(task.module))
    for rule, looked_at in (
        (PowerOfChoice(cohort_size=2, pool_size=6), sizes.sum()),
        (LowLoss(cohort_size=2, pool_size=6, estimate="batch", batch_size=2), 12),
        (PowerOfChoice(cohort_size=2, pool_size=6, estimate="last"), 0),
        (PowerOfChoice(cohort_size=2, pool_size=2), 0),
    ):
        _, records = run(task, plan_of(rule, rounds=1))
        assert records[-1].costs.probe_evaluations == looked_at
        assert records[-1].costs.bytes_down == size * (2 + (6 if looked_at else 0))
        assert records[-1].costs.bytes_up == size * 2


def point_task(targets: list[float]) -> Task:
    """F_i = ‖x − c_i‖², one sample a client."""
    pairs = [(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[c]], dtype=torch.float64)) for c in targets]
    return Task(federation=from_clients(pairs), module=PointModel(1), loss=losses.squared_error)


@pytest.mark.parametrize(("rule", "limit"), [(PowerOfChoice, 5.0), (LowLoss, 0.0)])
def test_convergence_the_worst_off_pull_to_the_minimax_point_and_the_best_off_ignore_an_outlier(
    rule: type[Any], limit: float
) -> None:
    # clients at 0, 0, 1 and 10; their mean is 2.75, and the point with the smallest largest loss is 5
    task = point_task([0.0, 0.0, 1.0, 10.0])
    plan = Plan(
        local=SGD(lr=0.01, steps=1, batches="full"),
        rounds=400,
        selection=rule(cohort_size=1, pool_size=4),
        aggregation=FedAvg(weighting="mean"),
        evaluate=NEVER,
    )
    final, _ = run(task, plan)
    assert abs(float(final.model[0]) - limit) <= 0.01 * 2 * 5 + 1e-9  # within one step


def test_error_fewer_candidates_than_wanted_says_what_to_set() -> None:
    with pytest.raises(ConfigError) as failure:
        PowerOfChoice(cohort_size=5, pool_size=2)
    assert str(failure.value) == (
        "PowerOfChoice needs pool_size >= cohort_size; got 2 < 5. Set selection.pool_size to 5 or more."
    )
    with pytest.raises(ConfigError, match=r"LowLoss needs pool_size >= cohort_size; got 2 < 5\. Set selection\.pool_s"):
        LowLoss(cohort_size=5, pool_size=2)
    with pytest.raises(ConfigError, match=r"PowerOfChoice needs cohort_size >= 1; got 0\. Change selection\.cohort_si"):
        PowerOfChoice(cohort_size=0, pool_size=2)


def test_error_a_batch_size_goes_with_batch_estimates_and_with_nothing_else() -> None:
    with pytest.raises(ConfigError, match=r'estimate = "batch" needs batch_size; got none\. Set selection\.batch'):
        PowerOfChoice(cohort_size=1, pool_size=2, estimate="batch")
    with pytest.raises(ConfigError, match=r"LowLoss needs batch_size >= 1; got 0"):
        LowLoss(cohort_size=1, pool_size=2, estimate="batch", batch_size=0)
    with pytest.raises(ConfigError, match=r'uses batch_size only with estimate = "batch".*Drop selection\.batch_size'):
        PowerOfChoice(cohort_size=1, pool_size=2, batch_size=3)


def test_error_every_needs_a_schedule() -> None:
    with pytest.raises(ConfigError, match=r'got every = 3 and schedule = "constant"\. Drop selection\.every'):
        PowerOfChoice(cohort_size=1, pool_size=2, every=3)
    with pytest.raises(ConfigError, match=r"needs every >= 1; got 0"):
        PowerOfChoice(cohort_size=1, pool_size=2, schedule="halve", every=0)
