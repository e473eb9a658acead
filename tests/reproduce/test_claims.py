"""Claims: what holds, what does not, and how it is said."""

import numpy as np
import pytest

from turnout.array_types import Floats
from turnout.reproduce.claims import Statement, above, below, count_text, exactly, number, value_text, with_verdicts

SAID = Statement(id="a", text="a claim", paper="1")
CLEAR = np.array([1.0, 1.1, 0.9, 1.05, 0.95])


def test_golden_a_clear_difference_holds_on_its_side_only() -> None:
    up, down = with_verdicts([above(SAID, CLEAR), below(SAID, CLEAR)])
    assert (up.held, down.held) == (True, False)
    assert up.ours == pytest.approx(1.0)
    assert up.spread == pytest.approx(np.std(CLEAR, ddof=1))
    assert up.seeds == 5


def test_golden_a_difference_within_the_noise_does_not_hold() -> None:
    (claim,) = with_verdicts([above(SAID, np.array([1.0, -0.9, 1.1, -1.0, 0.2]))])
    assert claim.supported is True  # the mean and three of five seeds are positive
    assert claim.held is False


def test_golden_most_seeds_have_to_agree_with_the_mean() -> None:
    (claim,) = with_verdicts([above(SAID, np.array([10.0, -1.0, -1.0]))])
    assert claim.supported is False


def test_golden_a_margin_is_what_the_values_are_held_against() -> None:
    near = CLEAR - 1.5  # about −0.5
    assert [claim.held for claim in with_verdicts([above(SAID, near), above(SAID, near, than=-1.0)])] == [False, True]
    assert with_verdicts([below(SAID, near, than=-0.6)])[0].held is False


def test_identity_tests_are_corrected_over_all_of_them() -> None:
    values = np.array([1.0, 0.2, 0.9, 0.5, 0.1])  # p between 0.02 and 0.05
    alone, *_ = with_verdicts([above(SAID, values)])
    among, *_ = with_verdicts([above(SAID, values) for _ in range(4)])
    assert alone.held is True
    assert among.held is False
    assert among.corrected_p == pytest.approx(4 * (among.p or 0))


def test_golden_an_identity_holds_within_its_tolerance_in_every_seed() -> None:
    off = np.array([0.0, 1e-9, -1e-9])
    held = [claim.held for claim in with_verdicts([exactly(SAID, off), exactly(SAID, off, 1e-8)])]
    assert held == [False, True]
    assert with_verdicts([exactly(SAID, np.array([0.0, np.nan]), 1.0)])[0].held is False


@pytest.mark.parametrize("values", [np.ones(3), np.ones(1)], ids=["the same in each seed", "one seed"])
def test_golden_a_claim_without_a_p_value_is_not_tested(values: Floats) -> None:
    supported, refuted = with_verdicts([above(SAID, values), below(SAID, values)])
    assert (supported.p, supported.held, supported.outcome) == (None, None, "not tested")
    assert (refuted.p, refuted.held, refuted.outcome) == (None, False, "not held")  # the values are on the other side


def test_golden_the_tally_counts_what_was_tested_and_says_what_was_not() -> None:
    claims = [above(SAID, CLEAR), below(SAID, CLEAR), above(SAID, np.ones(3)), number(SAID, CLEAR)]
    outcomes = [claim.outcome for claim in with_verdicts(claims)]
    assert outcomes == ["held", "not held", "not tested", "no claim"]
    assert count_text(outcomes) == "1 of 2, 1 not tested"
    assert count_text(outcomes[:2]) == "1 of 2"


def test_golden_a_number_has_no_verdict_and_what_is_not_finite_does_not_hold() -> None:
    free, broken = with_verdicts([number(SAID, CLEAR), above(SAID, np.array([1.0, np.inf, 1.0]))])
    assert free.held is None
    assert (broken.held, broken.ours) == (False, None)


@pytest.mark.parametrize(
    ("ours", "spread", "unit", "text"),
    [
        (26.31, 5.04, "points", "26.3 ± 5.0 points"),
        (-0.75, 0.071, "points", "−0.750 ± 0.071 points"),
        (1.25, 0.0, "×", "1.25×"),
        (1.2e-17, 2.1e-17, "", "1.2e-17 ± 2.1e-17"),
        (0.0, 0.0, "points", "0 points"),
        (None, None, "points", "not finite"),
        (101.0, None, "rounds", "101 rounds"),
    ],
)
def test_golden_numbers_have_the_digits_their_spread_allows(
    ours: float | None, spread: float | None, unit: str, text: str
) -> None:
    assert value_text(ours, spread, unit) == text
