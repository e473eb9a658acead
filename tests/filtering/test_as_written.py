"""FilFL against the algorithm as its paper writes it, decision by decision."""

import pytest

from tests.support.filtering_claims import claim_decides_as_written, claim_equal_gains_are_a_fair_coin
from turnout.filtering.greedy import accepts


@pytest.mark.parametrize("most", [None, 5, 1])
def test_golden_running_sums_decide_as_sets_do_with_two_evaluations_a_client(most: int | None) -> None:
    claim_decides_as_written(most)


def test_golden_equal_gains_are_a_fair_coin() -> None:
    claim_equal_gains_are_a_fair_coin(accepts)
