"""Uniform and weighted selection: who can be drawn, how often, and with what probability."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.optional import present
from tests.support.selection_asking import chosen
from turnout.protocols import Population, Selection, View
from turnout.selection import Uniform, Weighted
from turnout.streams import Streams


def view(sizes: Any, seed: int = 0, round: int = 1) -> View:
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
def test_contract_only_the_pool_is_drawn_ascending_each_once(
    rule: Any, sizes: list[int], seed: int, data: st.DataObject
) -> None:
    pool = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(sizes), max_size=len(sizes))))
    choice = chosen(rule, pool, view(sizes, seed))
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
def test_property_reported_probabilities_are_the_frequencies(rule: Selection) -> None:
    sizes = [1, 2, 3, 4, 10]
    counts, expected = np.zeros(5), np.zeros(5)
    draws = 4000
    for round in range(draws):
        choice = chosen(rule, np.arange(5), view(sizes, round=round))
        counts[choice.clients] += choice.multiplicity
        expected[choice.clients] = choice.inclusion_prob
    assert np.allclose(counts / draws, expected, atol=4 * np.sqrt(3 / draws))


def test_golden_probabilities_by_hand() -> None:
    assert present(chosen(Uniform(cohort_size=2), np.arange(8), view([1] * 8)).inclusion_prob).tolist() == [
        0.25,
        0.25,
    ]
    one = chosen(Weighted(cohort_size=4), np.array([2]), view([1, 1, 5]))
    assert one.multiplicity.tolist() == [4]
    assert present(one.inclusion_prob).tolist() == [4.0]


def test_property_a_draw_depends_on_the_round_and_the_seed_alone() -> None:
    pool = np.arange(50)
    rule = Uniform(cohort_size=5)
    first = chosen(rule, pool, view([1] * 50)).clients
    assert np.array_equal(first, chosen(rule, pool, view([9] * 50)).clients)
    assert not np.array_equal(first, chosen(rule, pool, view([1] * 50, round=2)).clients)
    assert not np.array_equal(first, chosen(rule, pool, view([1] * 50, seed=1)).clients)
