"""Coordinate median and trimmed mean: identities, shares, draws, and what an attacker can do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.support.rows_by_hand import combined, direction, rows_of
from tests.support.runs import run
from tests.support.server_steps import close
from tests.support.tasks import quadratic_task
from turnout.aggregation import FedAvg, Median, TrimmedMean, trimmed_mean
from turnout.coordinator import Cadence, Plan
from turnout.engine import Engine
from turnout.errors import ConfigError
from turnout.local import SGD
from turnout.protocols import Aggregation
from turnout.selection import Weighted

VALUES = st.floats(-100, 100)
matrices = st.integers(1, 9).flatmap(
    lambda n: st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=n, max_size=n)
)


def by_numpy(delta: list[list[float]], cut: int) -> Tensor:
    """The mean of the middle, the plain way."""
    ordered = np.sort(np.array(delta), axis=0)
    return torch.from_numpy(ordered[cut : len(ordered) - cut].mean(0))


@given(matrices)
def test_identity_the_median_is_numpys(delta: list[list[float]]) -> None:
    assert close(direction(Median(), delta), torch.from_numpy(np.median(delta, axis=0)))


@given(matrices, st.floats(0, 0.499))
def test_identity_the_trimmed_mean_sorts_and_cuts(delta: list[list[float]], fraction: float) -> None:
    cut = int(np.floor(fraction * len(delta) + 1e-9))
    found = combined(TrimmedMean(fraction=fraction), rows_of(delta))
    assert close(found.direction, by_numpy(delta, cut))
    assert found.metrics == {"cut_each_side": cut}


@given(matrices)
def test_identity_cutting_nothing_is_the_plain_mean(delta: list[list[float]]) -> None:
    plain = direction(FedAvg(weighting="mean"), delta)
    assert close(direction(TrimmedMean(fraction=0.0), delta), plain)
    if len(delta) <= 2:
        assert close(direction(Median(), delta), plain)


@given(matrices)
def test_identity_cutting_nearly_half_is_the_median(delta: list[list[float]]) -> None:
    odd = delta if len(delta) % 2 else delta[1:] + delta[:1] * 2
    assert close(direction(TrimmedMean(fraction=0.4999), odd), direction(Median(), odd))


def test_golden_shares_of_three_clients() -> None:
    # coordinates (1, 5, 9) and (4, 2, 3): the middle is client 1 and then client 2
    found = combined(Median(), rows_of([[1.0, 4.0], [5.0, 2.0], [9.0, 3.0]]))
    assert found.direction.tolist() == [5.0, 3.0]
    assert found.coefficients.tolist() == [0.0, 0.5, 0.5]


def test_golden_a_client_drawn_twice_votes_twice() -> None:
    # draws 1, 5, 9, 9: the middle two are 5 and 9
    found = combined(Median(), rows_of([[1.0], [5.0], [9.0]], multiplicity=[1, 1, 2]))
    assert found.direction.tolist() == [7.0]
    assert found.coefficients.tolist() == [0.0, 0.5, 0.5]
    # draws 1, 2, 2, 2, 9 with one cut each side: 2, 2, 2
    found = combined(TrimmedMean(fraction=0.2), rows_of([[1.0], [2.0], [9.0]], multiplicity=[1, 3, 1]))
    assert found.direction.tolist() == [2.0]
    assert found.coefficients.tolist() == [0.0, 1.0, 0.0]


def test_golden_equal_values_share_alike() -> None:
    # 0, 0, 0, 8 with one cut each side leaves two zeros, of three: each zero has a third
    found = combined(TrimmedMean(fraction=0.25), rows_of([[0.0], [8.0], [0.0], [0.0]]))
    assert found.coefficients.tolist() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3])
    nobody_moved = combined(Median(), rows_of([[0.0, 0.0]] * 4))
    assert nobody_moved.coefficients.tolist() == [0.25] * 4


def test_golden_fractions_that_floats_cannot_hold_cut_what_was_meant() -> None:
    assert combined(TrimmedMean(fraction=0.29), rows_of(np.ones((100, 1)))).metrics == {"cut_each_side": 29}


@given(matrices, st.sampled_from([Median(), TrimmedMean(fraction=0.3)]))
def test_property_shares_are_a_partition_and_agree_with_one_coordinate(
    delta: list[list[float]], rule: Aggregation
) -> None:
    shares = combined(rule, rows_of(delta)).coefficients
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    one = np.array(delta)[:, :1]
    found = combined(rule, rows_of(one))  # in one dimension the direction is the shares times the rows
    assert float(found.direction) == pytest.approx(float(found.coefficients @ one[:, 0]), abs=1e-9)


@given(matrices, st.floats(1e3, 1e9), st.booleans())
def test_property_one_attacker_cannot_leave_the_range_of_the_honest(
    delta: list[list[float]], push: float, below: bool
) -> None:
    honest = np.array(delta + delta[:1] * 2)  # three at least
    attacked = np.vstack([honest, np.full((1, 3), -push if below else push)])
    for rule in (Median(), TrimmedMean(fraction=0.34)):
        found = direction(rule, attacked).numpy()
        assert (found <= honest.max(0) + 1e-9).all()
        assert (found >= honest.min(0) - 1e-9).all()


def test_engine_column_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    delta = np.random.default_rng(0).normal(size=(5, 37))
    whole = combined(TrimmedMean(fraction=0.2), rows_of(delta))
    monkeypatch.setattr(trimmed_mean, "VALUES_AT_ONCE", 20)
    parts = combined(TrimmedMean(fraction=0.2), rows_of(delta))
    assert torch.equal(parts.direction, whole.direction)
    assert close(parts.coefficients, whole.coefficients)


@pytest.mark.parametrize("rule", [Median(), TrimmedMean(fraction=0.2)])
def test_convergence_reaches_the_middle_of_the_minima(rule: Aggregation, any_engine: Callable[[], Engine]) -> None:
    # equal curvature: Δ_i = a(x − x_i*), so the fixed point is the same middle of the minima, attacker and all
    minima = [[1.0, 0.0], [2.0, 4.0], [3.0, 1.0], [0.0, 2.0], [1e3, -1e3]]
    task = quadratic_task([1.0] * 5, minima, [1, 9, 2, 3, 50])
    plan = Plan(local=SGD(lr=0.3, steps=3, batches="full"), rounds=40, aggregation=rule, evaluate=Cadence(every=10**9))
    final, _ = run(task, plan, engine=any_engine())
    expected = by_numpy(minima, 2 if isinstance(rule, Median) else 1)
    assert close(final.model, expected, 1e-6)


def test_engine_draws_with_replacement_are_votes() -> None:
    task = quadratic_task([1.0] * 4, [[1.0], [2.0], [3.0], [9.0]], [1, 1, 1, 9])
    plan = Plan(
        local=SGD(lr=0.5, steps=1, batches="full"),
        rounds=5,
        selection=Weighted(cohort_size=5),
        aggregation=Median(),
    )
    _, records = run(task, plan)
    assert any((r.multiplicity > 1).any() for r in records[1:])
    model = np.zeros(1)
    for record in records[1:]:
        draws = np.repeat(record.asked, record.multiplicity)
        changes = 0.5 * (model - np.array([1.0, 2.0, 3.0, 9.0])[draws])
        model = model - np.median(changes)
        assert record.coefficients.sum() == pytest.approx(1)
    assert float(run(task, plan)[0].model) == pytest.approx(float(model[0]), abs=1e-12)


def test_error_a_fraction_of_half_or_more_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"fraction in \[0, 0\.5\).*got 0\.5\. Change aggregation\.fraction"):
        TrimmedMean(fraction=0.5)
