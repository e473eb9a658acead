"""Which client has which rate, and which units a rate means."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.width_checks import (
    assert_a_window_that_stands_still_is_nested,
    assert_steps_draw_every_rate_equally_often,
    view,
)
from turnout.catalogue import catalogue
from turnout.errors import ConfigError
from turnout.protocols import Population
from turnout.submodels import Devices
from turnout.width import Nested, Ordered, Random, Rolling
from turnout.width.rates import count_of, in_shares

RULES = {"nested": Nested, "ordered": Ordered, "random": Random, "rolling": Rolling}
RATES = (1.0, 0.5, 0.25)


def test_contract_every_rule_of_the_axis_is_tested_here() -> None:
    assert {*RULES, "architectures"} == set(catalogue("width"))  # which has a test file of its own


@pytest.mark.parametrize("name", RULES)
@given(size=st.integers(1, 40), rate=st.floats(0.01, 1.0), round=st.integers(1, 99), clients=st.sets(st.integers(0, 9)))
def test_contract_units_are_distinct_ascending_and_as_many_as_the_rate_says(
    name: str, size: int, rate: float, round: int, clients: set[int]
) -> None:
    asked = np.array(sorted(clients | {3}))
    units = RULES[name](rates=(rate,)).units(0, size, rate, asked, view(round))
    assert units.shape in ((count_of(rate, size),), (len(asked), count_of(rate, size)))
    assert (np.diff(units) > 0).all()
    assert units.min() >= 0
    assert units.max() < size


@pytest.mark.parametrize("name", RULES)
def test_contract_rate_one_is_every_unit(name: str) -> None:
    assert (RULES[name](rates=(1.0,)).units(0, 7, 1.0, np.array([3]), view(5)) == np.arange(7)).all()


def test_golden_counts_are_rounded_up_but_for_the_rounding_of_the_product() -> None:
    assert [count_of(rate, 10) for rate in (0.05, 0.1, 0.25, 0.3, 0.7, 1.0)] == [1, 1, 3, 3, 7, 10]


def test_golden_shares_are_dealt_out_in_order() -> None:
    order = np.array([4, 0, 1, 5, 2, 3])
    assert in_shares(order, (1.0, 0.5), (1.0, 2.0)).tolist() == [1.0, 0.5, 0.5, 0.5, 1.0, 0.5]


@pytest.mark.parametrize("shares", [None, (0.5, 0.25, 0.25)])
def test_property_fixed_rates_have_exact_shares_and_never_change(shares: Any) -> None:
    rule, everyone = Nested(rates=RATES, shares=shares), np.arange(12)
    first = rule.rates_of(everyone, view(1))
    counts = [int((first == rate).sum()) for rate in RATES]
    assert counts == ([4, 4, 4] if shares is None else [6, 3, 3])
    assert np.array_equal(first, rule.rates_of(everyone, view(7)))
    assert np.array_equal(first[[2, 5]], rule.rates_of(np.array([2, 5]), view(3)))


@pytest.mark.parametrize("shares", [(0.25, 0.75), (0.125, 0.375)])
def test_property_drawn_rates_change_with_the_round_and_follow_their_shares(shares: Any) -> None:
    rule, everyone = Nested(rates=(1.0, 0.5), shares=shares, assign="drawn"), np.arange(2000)
    many = view(1, clients=2000)
    first, second = rule.rates_of(everyone, many), rule.rates_of(everyone, view(2, clients=2000))
    assert not np.array_equal(first, second)
    assert abs((first == 1.0).mean() - 0.25) < 0.05
    assert np.array_equal(first[:10], rule.rates_of(np.arange(10), many))


def test_golden_the_fastest_devices_have_the_largest_rates() -> None:
    devices = Devices(seconds_per_step=np.array([3.0, 1.0, 2.0, 6.0, 5.0, 4.0]))
    rule = Nested(rates=(0.25, 1.0, 0.5), assign="by-speed")
    rates = rule.rates_of(np.arange(6), replace(view(clients=6), devices=devices))
    assert rates.tolist() == [0.5, 1.0, 1.0, 0.25, 0.25, 0.5]


def test_golden_listed_rates_are_the_clients_own() -> None:
    rule = Nested(rates=(0.5, 1.0, 0.25), assign="listed")
    assert rule.rates_of(np.array([0, 2]), view(clients=3)).tolist() == [0.5, 0.25]


def test_identity_a_window_that_stands_still_is_nested() -> None:
    assert_a_window_that_stands_still_is_nested()


@given(size=st.integers(1, 30), rate=st.floats(0.01, 1.0))
def test_property_in_as_many_rounds_as_units_a_window_covers_each_equally_often(size: int, rate: float) -> None:
    rule, seen = Rolling(rates=(rate,)), np.zeros(size, dtype=int)
    for round in range(1, size + 1):
        seen[rule.units(0, size, rate, np.arange(1), view(round))] += 1
    assert (seen == count_of(rate, size)).all()


def test_property_random_units_differ_between_clients_rounds_and_layers_and_are_equally_likely() -> None:
    rule, seen = Random(rates=(0.25,)), np.zeros(8)
    first, other = rule.units(0, 64, 0.25, np.array([4, 7]), view(1))
    others = [other, *(rule.units(group, 64, 0.25, np.array([4]), view(round))[0] for group, round in ((0, 2), (1, 1)))]
    assert all(not np.array_equal(first, other) for other in others)
    assert np.array_equal(first, rule.units(0, 64, 0.25, np.array([4]), view(1))[0])  # whoever else is asked
    for round in range(1, 2001):
        seen[rule.units(0, 8, 0.25, np.arange(1), view(round))[0]] += 1
    assert abs(seen / 2000 - 0.25).max() < 0.05


def test_property_steps_draw_every_rate_up_to_the_clients_own_equally_often() -> None:
    assert_steps_draw_every_rate_equally_often()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rates": ()}, "Nested needs rates, one at least; got none. Set width.rates"),
        ({"rates": (0.0, 1.0)}, r"Nested needs rates .*in \(0, 1\]; got .*0.*Change width.rates"),
        ({"rates": (0.5, 1.5)}, r"Nested needs rates .*in \(0, 1\]; got .*1.5.*Change width.rates"),
        ({"rates": (0.5, 1.0), "shares": (1.0,)}, "one share for each rate; got 1 shares for 2 rates"),
        ({"rates": (0.5,), "assign": "by-size"}, "Nested needs assign"),
        ({"rates": (0.5,), "shares": (1.0,), "assign": "listed"}, "uses shares only with assign"),
    ],
)
def test_error_settings_out_of_range_name_the_setting(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Nested(**settings)


def test_error_a_list_of_the_wrong_length_says_how_many_clients_there_are() -> None:
    (problem,) = Nested(rates=(0.5, 1.0), assign="listed").population_problems(Population.of(np.full(3, 10)))
    assert "one rate per client; got 2 for 3 clients" in problem.message
