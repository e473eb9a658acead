"""Published mistakes in filtering, and slips easily made, put into our filter: the claims must reject each."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.filtering_claims import claim_decides_as_written, claim_equal_gains_are_a_fair_coin
from turnout.filtering import greedy


class KeepsTheLastProbability:
    """As in the authors' code: the probability is set for a⁺ > b⁺ and for a⁺ < b⁺, and for a⁺ = b⁺ > 0 it is left."""

    def __init__(self) -> None:
        self.prob = 1.0

    def __call__(self, gain_in: float, gain_out: float, mode: str, coin: float, *, ties: bool = False) -> bool:
        joins, leaves = max(gain_in, 0.0), max(gain_out, 0.0)
        if joins != leaves:
            self.prob = joins / (joins + leaves)
        elif joins == 0:
            self.prob = 1.0
        return coin < self.prob


def test_contract_a_probability_left_over_from_the_client_before_is_rejected() -> None:
    with pytest.raises(AssertionError):
        claim_equal_gains_are_a_fair_coin(KeepsTheLastProbability())


class OfEveryone(greedy.UpdateSums):
    """Y starts as one client more than is considered, as where Y is all who are up and X only the first n of them."""

    def __init__(self, model: Tensor, deltas: Tensor) -> None:
        super().__init__(model, deltas)
        self.outside = self.outside + torch.ones_like(self.outside)
        self.num_outside += 1


class NeverLetsGo(greedy.UpdateSums):
    """A rejected client stays in Y."""

    def reject(self, row: int) -> None:
        pass


class CountsButDoesNotAdd(greedy.UpdateSums):
    """An accepted client is counted, and its change is left out of the sum."""

    def accept(self, row: Any) -> None:
        self.num_inside += 1


class SumsInPlaceOfMeans(greedy.UpdateSums):
    """The model of a set is moved by the sum of its changes."""

    def with_row(self, row: Any) -> Any:
        return self.inside + self.deltas[row]

    def without_row(self, row: Any) -> Any:
        return self.outside - self.deltas[row]

    def all(self) -> Any:
        return self.outside


@pytest.mark.parametrize("mutant", [OfEveryone, NeverLetsGo, CountsButDoesNotAdd, SumsInPlaceOfMeans])
def test_contract_a_filter_with_the_wrong_sets_is_rejected(monkeypatch: pytest.MonkeyPatch, mutant: type[Any]) -> None:
    claim_decides_as_written(5)
    monkeypatch.setattr(greedy, "UpdateSums", mutant)
    with pytest.raises(AssertionError):
        claim_decides_as_written(5)


def test_contract_accepting_what_loses_less_by_staying_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "accepts", lambda a, b, mode, coin, ties=False: a < b)
    with pytest.raises(AssertionError):
        claim_decides_as_written()
