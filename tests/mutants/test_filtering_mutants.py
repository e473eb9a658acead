"""Published mistakes in filtering, and slips easily made, put into our filter: the claims must reject each."""

import pytest
import torch

from tests.support.filtering_claims import claim_decides_as_written, claim_equal_gains_are_a_fair_coin
from turnout.filtering import greedy


class KeepsTheLastProbability:
    """As in the authors' code: the probability is set for a⁺ > b⁺ and for a⁺ < b⁺, and for a⁺ = b⁺ > 0 it is left."""

    def __init__(self):
        self.prob = 1.0

    def __call__(self, gain_in, gain_out, mode, coin, *, ties=False):
        joins, leaves = max(gain_in, 0.0), max(gain_out, 0.0)
        if joins != leaves:
            self.prob = joins / (joins + leaves)
        elif joins == 0:
            self.prob = 1.0
        return coin < self.prob


def test_contract_a_probability_left_over_from_the_client_before_is_rejected():
    with pytest.raises(AssertionError):
        claim_equal_gains_are_a_fair_coin(KeepsTheLastProbability())


class OfEveryone(greedy.UpdateSums):
    """Y starts as one client more than is considered, as where Y is all who are up and X only the first n of them."""

    def __init__(self, model, deltas):
        super().__init__(model, deltas)
        self.outside = self.outside + torch.ones_like(self.outside)
        self.num_outside += 1


class NeverLetsGo(greedy.UpdateSums):
    """A rejected client stays in Y."""

    def reject(self, row):
        pass


class CountsButDoesNotAdd(greedy.UpdateSums):
    """An accepted client is counted, and its change is left out of the sum."""

    def accept(self, row):
        self.num_inside += 1


class SumsInPlaceOfMeans(greedy.UpdateSums):
    """The model of a set is moved by the sum of its changes."""

    def with_row(self, row):
        return self.inside + self.deltas[row]

    def without_row(self, row):
        return self.outside - self.deltas[row]

    def all(self):
        return self.outside


@pytest.mark.parametrize("mutant", [OfEveryone, NeverLetsGo, CountsButDoesNotAdd, SumsInPlaceOfMeans])
def test_contract_a_filter_with_the_wrong_sets_is_rejected(monkeypatch, mutant):
    claim_decides_as_written(5)
    monkeypatch.setattr(greedy, "UpdateSums", mutant)
    with pytest.raises(AssertionError):
        claim_decides_as_written(5)


def test_contract_accepting_what_loses_less_by_staying_is_rejected(monkeypatch):
    monkeypatch.setattr(greedy, "accepts", lambda a, b, mode, coin, ties=False: a < b)
    with pytest.raises(AssertionError):
        claim_decides_as_written()
