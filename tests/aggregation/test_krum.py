"""Krum and multi-Krum: scores by hand, identities, shortages, and attackers left out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.robust_checks import LINE, assert_scores_sum_the_nearest_others
from tests.support.rows_by_hand import combined, direction, rows_of
from tests.support.runs import run
from tests.support.server_steps import close
from tests.support.tasks import quadratic_task
from turnout.aggregation import FedAvg, Krum, MultiKrum, krum
from turnout.aggregation.krum import neighbour_scores, square_distances, tolerable_attackers
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.compatibility import problems
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.fleet import Bernoulli, Fleet
from turnout.local import SGD
from turnout.protocols import Aggregation
from turnout.selection import Uniform

VALUES = st.floats(-10, 10).map(lambda v: round(v, 3))
matrices = st.integers(1, 9).flatmap(
    lambda n: st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=n, max_size=n)
)


def test_golden_scores_of_five_clients_on_a_line() -> None:
    assert_scores_sum_the_nearest_others(neighbour_scores)
    found = combined(Krum(num_attackers=1), rows_of(LINE))
    assert found.direction.tolist() == [1.0]  # 5 ties with 5: the lowest client
    assert found.coefficients.tolist() == [0, 1, 0, 0, 0]
    assert found.metrics == {"attackers_tolerated": 1}


def test_golden_multi_krum_averages_the_best() -> None:
    two = combined(MultiKrum(num_attackers=1, num_kept=2), rows_of(LINE))
    assert two.direction.tolist() == [2.0]
    assert two.coefficients.tolist() == [0, 0.5, 0.5, 0, 0]
    all_but_one = combined(MultiKrum(num_attackers=1), rows_of(LINE))
    assert all_but_one.direction.tolist() == [2.0]
    assert all_but_one.coefficients.tolist() == [0.25] * 4 + [0]
    assert all_but_one.metrics == {"attackers_tolerated": 1, "kept": 4}


def test_golden_a_client_drawn_twice_is_its_own_neighbour() -> None:
    # draws 0, 4, 4, 5½, 9; f = 1, two nearest: 0: 16+16; 4: 0+2¼; 5½: 2¼+2¼; 9: 12¼+25
    found = combined(Krum(num_attackers=1), rows_of([[0.0], [4.0], [5.5], [9.0]], multiplicity=[1, 2, 1, 1]))
    assert found.coefficients.tolist() == [0, 1, 0, 0]
    # the best three draws are 4, 4 and 5½
    found = combined(
        MultiKrum(num_attackers=1, num_kept=3), rows_of([[0.0], [4.0], [5.5], [9.0]], multiplicity=[1, 2, 1, 1])
    )
    assert found.coefficients.tolist() == pytest.approx([0, 2 / 3, 1 / 3, 0])
    assert float(found.direction) == pytest.approx(4.5)


@given(matrices)
def test_property_distances_are_those_of_the_rows(delta: list[list[float]]) -> None:
    rows = np.array(delta)
    plain = ((rows[:, None] - rows[None]) ** 2).sum(-1)
    found = square_distances(torch.from_numpy(rows))
    assert close(found, plain, 1e-9)
    assert np.array_equal(found, found.T)
    assert (np.diag(found) == 0).all()


def test_property_one_huge_row_does_not_drown_the_distances_of_the_others() -> None:
    rows = torch.tensor([[0.0, 0.0], [1.0, 2.0], [3.0, 1.0]], dtype=torch.float64)
    huge = torch.cat([rows, torch.full((1, 2), 1e150, dtype=torch.float64)])
    assert np.array_equal(square_distances(huge)[:3, :3], square_distances(rows))
    overflowing = torch.cat([rows, torch.full((1, 2), 1e300, dtype=torch.float64)])
    assert square_distances(overflowing)[0, 3] == np.inf
    assert combined(Krum(num_attackers=0), rows_of(overflowing.numpy())).coefficients[3] == 0


def test_property_distances_survive_a_large_common_part() -> None:
    rows = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64) * 1e-3
    assert close(square_distances(rows + 1e6), square_distances(rows), 1e-6)


@given(matrices, st.integers(0, 3))
def test_identity_keeping_one_is_krum(delta: list[list[float]], num_attackers: int) -> None:
    one = combined(MultiKrum(num_attackers=num_attackers, num_kept=1), rows_of(delta))
    krum_ = combined(Krum(num_attackers=num_attackers), rows_of(delta))
    assert torch.equal(one.direction, krum_.direction)
    assert np.array_equal(one.coefficients, krum_.coefficients)


@given(matrices)
def test_identity_no_attackers_and_all_kept_is_the_plain_mean(delta: list[list[float]]) -> None:
    found = combined(MultiKrum(num_attackers=0), rows_of(delta))
    plain = direction(FedAvg(weighting="mean"), delta)
    assert close(found.direction, plain)


@given(st.integers(1, 3), st.integers(0, 4), st.floats(50, 1e6), st.randoms(use_true_random=False))
def test_property_attackers_that_stay_far_away_never_count(attackers: int, more: int, push: float, random: Any) -> None:
    honest = 2 * attackers + 3 - attackers + more
    delta = [[random.uniform(-1, 1), random.uniform(-1, 1)] for _ in range(honest)]
    delta += [[push * (k + 1), -push] for k in range(attackers)]
    for rule in (Krum(num_attackers=attackers), MultiKrum(num_attackers=attackers)):
        found = combined(rule, rows_of(delta))
        assert (found.coefficients[honest:] == 0).all()
        assert found.metrics["attackers_tolerated"] == attackers


@pytest.mark.parametrize(
    ("draws", "asked", "expected"), [(1, 1, 0), (2, 1, 0), (4, 1, 0), (5, 1, 1), (6, 2, 1), (7, 2, 2), (99, 2, 2)]
)
def test_golden_too_few_draws_guard_against_as_many_as_they_can(draws: int, asked: int, expected: int) -> None:
    assert tolerable_attackers(draws, asked) == expected


@pytest.mark.parametrize("rule", [Krum(num_attackers=2), MultiKrum(num_attackers=2)])
def test_engine_a_shortage_is_recorded_and_the_run_goes_on(rule: Aggregation) -> None:
    task = quadratic_task([1.0] * 8, [[float(i)] for i in range(8)], [1] * 8)
    plan = Plan(
        local=SGD(lr=0.5, steps=1, batches="full"),
        rounds=25,
        fleet=Fleet(availability=Bernoulli(prob=0.5)),
        selection=Uniform(cohort_size=7),
        aggregation=rule,
    )
    _, records = run(task, plan)
    guarded = {len(r.answered): r.metrics["attackers_tolerated"] for r in records[1:] if len(r.answered)}
    assert {size: tolerable_attackers(size, 2) for size in guarded} == guarded
    assert min(guarded) < 5 <= max(guarded)


def test_convergence_krum_follows_one_client_and_multi_krum_the_mean_of_the_kept(
    any_engine: Callable[[], Engine],
) -> None:
    # equal curvature: differences of changes do not depend on x, so the choice never changes
    minima = [[0.0, 0.0], [1.5, 0.0], [3.0, 1.0], [5.0, 1.0], [100.0, -100.0]]
    task = quadratic_task([1.0] * 5, minima, [1] * 5)
    local, never = SGD(lr=0.3, steps=3, batches="full"), Cadence(every=10**9)
    plan = Plan(local=local, rounds=40, aggregation=Krum(num_attackers=1), evaluate=never)
    final, records = run(task, plan, engine=any_engine())
    # two nearest each: 0: 2¼ + 10; 1: 2¼ + 3¼; 2: 3¼ + 4; 3: 4 + 13¼
    assert all(r.coefficients.tolist() == [0, 1, 0, 0, 0] for r in records[1:])
    assert close(final.model, minima[1], 1e-6)
    final, _ = run(task, replace(plan, aggregation=MultiKrum(num_attackers=1)), engine=any_engine())
    assert close(final.model, np.mean(minima[:4], axis=0), 1e-6)


def test_engine_column_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 41)))
    whole = square_distances(rows)
    monkeypatch.setattr(krum, "COLUMNS_AT_ONCE", 7)
    assert close(square_distances(rows), whole)


@pytest.mark.parametrize("rule", [Krum, MultiKrum])
def test_error_a_cohort_too_small_for_the_guarantee_is_refused(rule: type[Any]) -> None:
    plan = Plan(
        local=SGD(lr=0.1, epochs=1),
        rounds=1,
        selection=Uniform(cohort_size=6),
        aggregation=rule(num_attackers=2),
    )
    (problem,) = [found.message for found in problems(plan)]
    assert problem == (
        f"{rule.__name__} on aggregation: the attackers it tolerates need cohort_size >= 7; got 6. "
        "Set selection.cohort_size to 7 or more, or lower aggregation.num_attackers."
    )
    assert list(problems(replace(plan, selection=Uniform(cohort_size=7)))) == []
    assert list(problems(replace(plan, selection=Uniform()))) == []


def test_error_settings_that_cannot_be_name_the_setting() -> None:
    for rule in (Krum, MultiKrum):
        with pytest.raises(ConfigError, match=rf"{rule.__name__} needs num_attackers >= 0; got -1\. Change aggr"):
            rule(num_attackers=-1)
    with pytest.raises(ConfigError, match=r"num_kept >= 1; got 0\. Change aggregation\.num_kept"):
        MultiKrum(num_kept=0)
