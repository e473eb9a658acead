"""Uniform and weighted selection: who can be drawn, how often, and with what probability."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from turnout.protocols import Population, View
from turnout.selection import Uniform, Weighted
from turnout.streams import Streams


def view(sizes, seed=0, round=1):
    return View(
        round=round, rounds=9, streams=Streams(seed), population=Population.of(np.asarray(sizes)), model=torch.zeros(1)
    )


RULES = [
    Uniform(cohort_size=3),
    Uniform(cohort_size=3, replacement=True),
    Weighted(cohort_size=3),
    Weighted(cohort_size=3, replacement=False),
    Uniform(),
]


@pytest.mark.parametrize("rule", RULES)
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20), seed=st.integers(0, 99), data=st.data())
def test_contract_only_the_pool_is_drawn_ascending_each_once(rule, sizes, seed, data):
    pool = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    choice = rule.choose(pool, view(sizes, seed), None)
    assert np.isin(choice.clients, pool).all()
    assert (np.diff(choice.clients) > 0).all()
    assert (choice.multiplicity >= 1).all()
    size = rule.cohort_size
    if len(pool) and size is not None:
        drawn = int(choice.multiplicity.sum())
        assert drawn == (size if rule.replacement else min(size, len(pool)))
    if len(pool) == 0:
        assert len(choice.clients) == 0


@pytest.mark.parametrize("rule", RULES[:3])
def test_property_reported_probabilities_are_the_frequencies(rule):
    sizes = [1, 2, 3, 4, 10]
    counts, expected = np.zeros(5), np.zeros(5)
    draws = 4000
    for round in range(draws):
        choice = rule.choose(np.arange(5), view(sizes, round=round), None)
        counts[choice.clients] += choice.multiplicity
        expected[choice.clients] = choice.inclusion_prob
    assert np.allclose(counts / draws, expected, atol=4 * np.sqrt(3 / draws))


def test_golden_probabilities_by_hand():
    assert Uniform(cohort_size=2).choose(np.arange(8), view([1] * 8), None).inclusion_prob.tolist() == [0.25, 0.25]
    one = Weighted(cohort_size=4).choose(np.array([2]), view([1, 1, 5]), None)
    assert one.multiplicity.tolist() == [4]
    assert one.inclusion_prob.tolist() == [4.0]


def test_property_a_draw_depends_on_the_round_and_the_seed_alone():
    pool = np.arange(50)
    rule = Uniform(cohort_size=5)
    first = rule.choose(pool, view([1] * 50), None).clients
    assert np.array_equal(first, rule.choose(pool, view([9] * 50), None).clients)
    assert not np.array_equal(first, rule.choose(pool, view([1] * 50, round=2), None).clients)
    assert not np.array_equal(first, rule.choose(pool, view([1] * 50, seed=1), None).clients)
