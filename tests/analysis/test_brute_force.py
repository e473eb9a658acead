"""Brute force over all subsets: by hand, and as a bound on what the greedy filter finds."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.filtering_asking import Ear, distance_to
from turnout.analysis.brute_force import all_subsets, best_subset
from turnout.errors import ConfigError
from turnout.filtering import Greedy


def losses_of(loss: Callable[..., Any]) -> Callable[..., Any]:
    return lambda models: np.array([loss(model) for model in models])


def test_golden_three_clients_by_hand() -> None:
    # models 1, 3 and −9 from 0; the set wants 2: {0, 1} is exact, {0, 1, 2} is off by 11/3
    deltas = torch.tensor([[-1.0], [-3.0], [9.0]], dtype=torch.float64)
    found = best_subset(
        torch.zeros(1, dtype=torch.float64), deltas, np.arange(3), losses_of(distance_to(torch.tensor([2.0])))
    )
    assert found.members.tolist() == [0, 1]
    assert found.loss == pytest.approx(0.0)
    assert found.kept_loss == pytest.approx((11 / 3) ** 2)
    assert found.reward_ratio == pytest.approx((10 - (11 / 3) ** 2) / 10)
    assert found.loss_ratio == pytest.approx(0.0)


@given(st.integers(1, 7))
def test_property_every_subset_once(count: int) -> None:
    rows = {tuple(np.flatnonzero(row)) for row in all_subsets(count)}
    expected = {s for n in range(1, count + 1) for s in itertools.combinations(range(count), n)}
    assert rows == expected
    assert len(all_subsets(count)) == len(expected)


@given(st.integers(0, 30))
@settings(max_examples=15)
def test_property_no_filter_beats_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    deltas, loss = torch.tensor(rng.normal(size=(8, 3))), distance_to(torch.tensor(rng.normal(size=3)))
    kept = Ear(deltas, loss).hear(Greedy(), np.arange(8), seed).clients
    found = best_subset(torch.zeros(3, dtype=torch.float64), deltas, kept, losses_of(loss))
    assert found.loss <= found.kept_loss + 1e-12
    assert found.reward_ratio <= 1 + 1e-12
    assert found.loss_ratio <= 1 + 1e-12


def test_identity_the_best_set_itself_has_ratio_one() -> None:
    deltas, loss = torch.tensor([[1.0], [-2.0]], dtype=torch.float64), distance_to(torch.tensor([2.5]))
    found = best_subset(torch.zeros(1, dtype=torch.float64), deltas, np.array([1]), losses_of(loss))
    assert (found.reward_ratio, found.loss_ratio) == (1.0, 1.0)


def test_error_too_many_clients_or_nobody_kept() -> None:
    zero = torch.zeros(1)
    for rows, kept in ((13, np.arange(2)), (3, np.zeros(0, dtype=np.int64))):
        with pytest.raises(ConfigError, match=f"1 to 12 clients and a set that keeps one; got {rows} clients"):
            best_subset(zero, torch.zeros(rows, 1), kept, losses_of(distance_to(zero)))
