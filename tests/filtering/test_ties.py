"""Ties of FilFL's filter between models that are equal but for the rounding of a sum."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.filtering_asking import Ear, distance_to
from turnout.filtering import Greedy

# thirds and tenths: sums of k copies, divided by k, differ in the last bit from one k to the next
ALIKE = torch.tensor([[0.1, 1 / 3, 0.7]] * 9, dtype=torch.float64)
FAR = distance_to(torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64))
EVERYONE = np.arange(9)


def test_contract_averages_of_equal_changes_do_differ_by_rounding() -> None:
    averages = {tuple((ALIKE[:count].sum(0) / count).tolist()) for count in range(1, 10)}
    assert len(averages) > 1  # or the tests below would test nothing


@pytest.mark.parametrize("seed", range(20))
def test_golden_of_equal_clients_one_is_kept_and_all_where_ties_are_taken(seed: int) -> None:
    # the first client gains R({u}) − R(∅) > 0 = b; from then on a = b = 0
    kept = Ear(ALIKE, FAR).hear(Greedy(), EVERYONE, seed)
    assert len(kept.clients) == 1
    taken = Ear(ALIKE, FAR).hear(Greedy(ties=True), EVERYONE, seed)
    assert taken.clients.tolist() == EVERYONE.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_golden_of_equal_clients_a_coin_keeps_all(seed: int) -> None:
    # a⁺ = b⁺ = 0 is accepted with probability 1
    kept = Ear(ALIKE, FAR).hear(Greedy(mode="randomised"), EVERYONE, seed)
    assert kept.clients.tolist() == EVERYONE.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_golden_clients_that_did_not_move_tie_with_the_model_they_started_from(seed: int) -> None:
    still = torch.zeros(4, 3, dtype=torch.float64)
    kept = Ear(still, FAR).hear(Greedy(empty="global", ties=True), np.arange(4), seed)
    assert kept.clients.tolist() == [0, 1, 2, 3]
    assert len(Ear(still, FAR).hear(Greedy(empty="global"), np.arange(4), seed).clients) == 0


@pytest.mark.parametrize("mode", ["deterministic", "randomised"])
def test_property_the_last_bits_of_changes_decide_nothing(mode: Any) -> None:
    # three clients alike, three others alike: who stays is the same however their last bits fall
    rng = np.random.default_rng(1)
    for seed in range(10):
        kinds = torch.tensor(rng.normal(size=(2, 3)))[[0, 1, 0, 1, 0, 1]]
        noise = 1 + 1e-15 * torch.tensor(rng.integers(-3, 4, size=(6, 3)))
        clean, noisy = (
            Ear(rows, FAR).hear(Greedy(mode=mode, ties=mode == "deterministic"), np.arange(6), seed).clients
            for rows in (kinds, kinds * noise)
        )
        assert clean.tolist() == noisy.tolist()
