"""Published mistakes in selection, put into our rules: the suite's own claims must reject each."""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.selection_claims import (
    claim_batch_losses_are_the_clients_own,
    claim_one_of_each_group_is_chosen,
    claim_sending_is_unbiased,
    claim_the_hardest_candidates_are_chosen,
    unlike_clients,
)
from turnout.array_types import Ids
from turnout.data.federation import Slab
from turnout.engine import evaluation
from turnout.protocols import Ask, View
from turnout.requests import Probe
from turnout.selection import Optimal, PowerOfChoice, facility_location, power_of_choice
from turnout.selection.low_loss import easiest
from turnout.selection.sampling import candidates, choice_of, losses_of

RULE = PowerOfChoice(cohort_size=3, pool_size=5)


class PlacesOfCandidatesReadInThePool(PowerOfChoice):
    def choose(self, pool: Ids, view: View, ask: Any) -> Generator[Any, Any, Any]:
        drawn = candidates(pool, self.pool_size, view)
        losses = yield from losses_of(drawn, view, ask, self.estimate, None)
        return choice_of(np.sort(pool[np.argsort(-losses)[: self.cohort_size]]))


def test_contract_places_of_candidates_read_in_the_list_of_those_up_are_rejected() -> None:
    with pytest.raises(AssertionError):
        claim_the_hardest_candidates_are_chosen(PlacesOfCandidatesReadInThePool(cohort_size=3, pool_size=5))


def test_contract_power_of_choice_on_the_smallest_losses_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    claim_the_hardest_candidates_are_chosen(RULE)
    monkeypatch.setattr(power_of_choice, "hardest", easiest)
    with pytest.raises(AssertionError):
        claim_the_hardest_candidates_are_chosen(RULE)


def test_contract_a_mini_batch_of_global_sample_numbers_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    own = evaluation._probe_rows

    def local_numbers_as_global(slab: Slab, request: Probe) -> tuple[Ids, Ids]:
        whole = request.batch_size is None
        return own(slab if whole else slab._replace(starts=np.zeros_like(slab.starts)), request)

    claim_batch_losses_are_the_clients_own(unlike_clients())
    monkeypatch.setattr(evaluation, "_probe_rows", local_numbers_as_global)
    with pytest.raises(AssertionError):
        claim_batch_losses_are_the_clients_own(unlike_clients())


def test_contract_divfl_that_maximises_the_sum_of_minimum_distances_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim_one_of_each_group_is_chosen(facility_location.greedy)
    apart_most: Callable[..., Any] = lambda apart, nearest, at: np.minimum(nearest, apart[at]).sum(1)  # noqa: E731
    monkeypatch.setattr(facility_location, "gains", apart_most)
    with pytest.raises(AssertionError):
        claim_one_of_each_group_is_chosen(facility_location.greedy)


class NeverDividedByTheProbability(Optimal):
    def choose(self, pool: Ids, view: View, ask: Ask) -> Generator[Any, Any, Any]:
        choice = yield from super().choose(pool, view, ask)
        return replace(choice, inclusion_prob=np.ones(len(choice.clients)))


def test_contract_optimal_sampling_without_dividing_by_the_probability_is_rejected() -> None:
    with pytest.raises(AssertionError):
        claim_sending_is_unbiased(NeverDividedByTheProbability(cohort_size=2, pool_size=6), draws=300)
