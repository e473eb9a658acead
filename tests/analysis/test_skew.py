"""Selection skew: one for unbiased selection, by hand for two clients, and larger the pickier the rule."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.selection_asking import Desk, chosen, next_round, view
from turnout.analysis.skew import Skew, expected_shares, skew, skew_bounds
from turnout.errors import ConfigError
from turnout.protocols import Selection
from turnout.selection import DivFL, LowLoss, Oort, Optimal, PowerOfChoice, Uniform, Weighted

ZERO = np.zeros(3)


def test_golden_two_clients_by_hand() -> None:
    # gaps (5 − 1, 2 − 0) = (4, 2), p = (¼, ¾): F − Σ p F* = 2.5; the first client alone: 4 / 2.5
    losses, minima, p = np.array([5.0, 2.0]), np.array([1.0, 0.0]), np.array([0.25, 0.75])
    assert skew(np.array([1.0, 0.0]), losses, minima, p) == pytest.approx(1.6)
    assert skew(np.array([0.5, 0.5]), losses, minima, p) == pytest.approx(3 / 2.5)
    # F(x*) does not come off the denominator too
    assert skew(np.array([1.0, 0.0]), losses, minima, p) != pytest.approx(4 / (2.5 - 1))


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), st.lists(st.floats(0.01, 9), min_size=3, max_size=3))
def test_identity_shares_equal_to_the_weights_have_no_skew(raw: list[float], gaps: list[float]) -> None:
    p = np.array(raw) / sum(raw)
    assert skew(p, np.array(gaps), ZERO, p) == pytest.approx(1, abs=1e-12)


def test_identity_unbiased_selection_has_no_skew() -> None:
    sizes, losses = [1, 2, 3, 4, 10], np.array([9.0, 1.0, 5.0, 0.5, 2.0])
    here = view(sizes)
    draws = 3000
    shares = expected_shares(Weighted(cohort_size=3), here, np.arange(5), losses, times=draws)
    assert shares.sum() == pytest.approx(1)
    assert np.allclose(shares, here.weights, atol=4 * np.sqrt(0.25 / 3 / draws))
    assert skew(shares, losses, np.zeros(5), here.weights) == pytest.approx(1, abs=0.1)
    even = expected_shares(Uniform(), here, np.arange(5), losses, times=2)
    assert np.allclose(even, 1 / 5)


def test_property_skew_rises_with_the_number_of_candidates() -> None:
    losses = np.random.default_rng(0).random(20) * 5
    here = view([1] * 20)
    everyone = np.arange(20)

    def ratio(rule: Selection) -> float:
        return float(skew(expected_shares(rule, here, everyone, losses, times=300), losses, np.zeros(20), here.weights))

    ratios = [ratio(PowerOfChoice(cohort_size=2, pool_size=d)) for d in (2, 4, 8, 20)]
    assert ratios == sorted(ratios)
    assert ratios[0] == pytest.approx(1, abs=0.12)
    assert ratios[-1] == pytest.approx(np.sort(losses)[-2:].mean() / losses.mean())  # always the two worst
    assert ratio(LowLoss(cohort_size=2, pool_size=8)) < 1


def test_golden_bounds_are_the_smallest_anywhere_and_the_largest_at_the_optimum() -> None:
    p = np.array([0.5, 0.5])
    shares = np.array([[1.0, 0.0], [0.5, 0.5]])
    visited = np.array([[[3.0, 1.0], [1.0, 3.0]], [[2.0, 4.0], [0.0, 0.0]]])  # the last point has no gap: left out
    found = skew_bounds(shares, visited, np.array([6.0, 2.0]), np.zeros(2), p)
    assert found == Skew(lowest=0.5, at_optimum=1.5)  # 1 / 2 in round 1; 6 / 4 with the shares of round 1
    assert found.bias == pytest.approx(2.0)


def test_property_no_gap_anywhere_has_no_skew_to_speak_of() -> None:
    assert np.isnan(skew(np.array([1.0, 0.0, 0.0]), ZERO, ZERO, np.full(3, 1 / 3)))


def test_property_the_draws_are_keyed_and_are_not_the_runs() -> None:
    losses, here = np.arange(9.0), view([1] * 9)
    first, again = (expected_shares(Uniform(cohort_size=2), here, np.arange(9), losses, times=20) for _ in range(2))
    assert np.array_equal(first, again)
    other = expected_shares(Uniform(cohort_size=2), replace(here, round=2), np.arange(9), losses, times=20)
    assert not np.array_equal(first, other)


def test_property_only_the_pool_has_a_share() -> None:
    shares = expected_shares(Oort(cohort_size=2), view([1] * 9), np.array([1, 4, 7]), np.arange(9.0), times=50)
    assert np.flatnonzero(shares).tolist() == [1, 4, 7]
    assert not expected_shares(Uniform(), view([1] * 3), np.zeros(0, dtype=np.int64), ZERO, times=3).any()


def test_property_a_run_is_not_changed_by_being_looked_at() -> None:
    rows = torch.tensor(np.random.default_rng(0).normal(size=(6, 2)))
    rule, here = DivFL(cohort_size=2), view([1] * 6)
    here = next_round(here, chosen(rule, range(6), here, Desk(gradient=rows)))
    table, apart = here.memory["table"].take(np.arange(6)), here.memory["distances"].clone()
    shares = expected_shares(rule, here, np.arange(6), np.ones(6), gradients=rows * 7 + 1, times=3)
    assert shares.sum() == pytest.approx(1)
    assert torch.equal(here.memory["table"].take(np.arange(6)), table)
    assert torch.equal(here.memory["distances"], apart)


def test_error_what_cannot_be_answered_is_named() -> None:
    here = view([1] * 4)
    with pytest.raises(ConfigError, match=r"DivFL asks for gradients; expected_shares was given none\. Pass gradients"):
        expected_shares(DivFL(cohort_size=2), here, np.arange(4), np.ones(4))
    with pytest.raises(ConfigError, match=r"asks for losses or gradients; this one asks for train\. Measure it from"):
        expected_shares(Optimal(cohort_size=2, pool_size=3), here, np.arange(4), np.ones(4))
    with pytest.raises(ConfigError, match=r"expected_shares needs times >= 1; got 0"):
        expected_shares(Uniform(), here, np.arange(4), np.ones(4), times=0)
