"""Claims: four verdicts by interval, over the primary ones alone, and how they are said."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.array_types import Floats
from turnout.errors import ConfigError
from turnout.reproduce.claims import (
    Claim,
    Statement,
    above,
    below,
    counts,
    counts_text,
    exactly,
    interval_text,
    judged,
    number,
    our_own,
    value_text,
)
from turnout.reproduce.shipped import shipped

SAID = Statement(id="a", text="a claim", paper="1")
CLEAR = np.array([1.0, 1.1, 0.9, 1.05, 0.95])
NOISE = np.array([1.0, -0.9, 1.1, -1.0, 0.2])


def primary(*claims: Claim) -> list[Claim]:
    """Return the claims, judged as one family."""
    named = [replace(claim, statement=replace(claim.statement, id=str(place))) for place, claim in enumerate(claims)]
    return judged(named, [[str(place) for place in range(len(claims))]])


def test_golden_a_clear_difference_holds_on_its_side_and_is_contradicted_on_the_other() -> None:
    up, down = primary(above(SAID, CLEAR), below(SAID, CLEAR))
    assert (up.verdict, down.verdict) == ("held", "contradicted")
    assert up.ours == pytest.approx(1.0)
    assert up.spread == pytest.approx(np.std(CLEAR, ddof=1))
    assert up.seeds == 5


def test_golden_a_difference_within_the_noise_is_not_settled_and_says_what_would_settle_it() -> None:
    (claim,) = primary(above(SAID, NOISE))
    assert claim.verdict == "not settled"
    assert claim.low is not None
    assert claim.high is not None
    assert claim.low < 0 < claim.high
    assert claim.smallest is not None
    assert claim.smallest > abs(claim.ours or 0)
    assert claim.seeds_needed is not None
    assert claim.seeds_needed > 5


def test_golden_a_margin_is_what_the_interval_is_held_against() -> None:
    near = CLEAR - 1.5  # about −0.5
    assert [claim.verdict for claim in primary(above(SAID, near), above(SAID, near, than=-1.0))] == [
        "contradicted",
        "held",
    ]
    assert primary(below(SAID, near, than=-0.6))[0].verdict == "contradicted"


def test_identity_tests_are_corrected_over_their_family_alone() -> None:
    values = np.array([1.0, 0.2, 0.9, 0.5, 0.1])  # p between 0.02 and 0.05
    claims = [above(Statement(id=str(place), text=""), values) for place in range(5)]
    alone = judged(claims, [["0"]])[0]
    among = judged(claims, [["0", "1", "2", "3"], ["4"]])
    assert alone.verdict == "held"
    assert [claim.verdict for claim in among] == ["not settled"] * 4 + ["held"]
    assert among[0].corrected_p == pytest.approx(4 * (among[0].p or 0))
    assert among[4].corrected_p == among[4].p
    assert among[0].high is not None
    assert among[4].high is not None
    assert among[0].high > among[4].high  # the interval is corrected like the p-value


def test_golden_secondary_claims_have_an_interval_and_no_verdict() -> None:
    (claim,) = judged([our_own(above(SAID, CLEAR))])
    assert (claim.verdict, claim.is_primary, claim.is_ours) == (None, False, True)
    assert claim.low == pytest.approx(1.0 - 2.776445 * np.std(CLEAR, ddof=1) / math.sqrt(5))


def test_golden_an_identity_is_exact_within_its_tolerance_in_every_seed_and_has_no_verdict() -> None:
    off = np.array([0.0, 1e-9, -1e-9])
    strict, loose = judged([exactly(SAID, off), exactly(SAID, off, 1e-8)])
    assert (strict.is_exact, loose.is_exact) == (False, True)
    assert (strict.verdict, loose.verdict) == (None, None)
    assert judged([exactly(SAID, np.array([0.0, np.nan]), 1.0)])[0].is_exact is False


@pytest.mark.parametrize(
    "values", [np.ones(3), np.ones(1), np.array([1.0, np.inf, 1.0])], ids=["the same in each seed", "one seed", "inf"]
)
def test_golden_a_claim_without_a_p_value_is_not_tested_on_either_side(values: Floats) -> None:
    for claim in primary(above(SAID, values), below(SAID, values)):
        assert (claim.p, claim.low, claim.verdict) == (None, None, "not tested")


def test_golden_the_four_counts() -> None:
    claims = primary(above(SAID, CLEAR), below(SAID, CLEAR), above(SAID, NOISE), above(SAID, np.ones(3)))
    assert counts(claims) == {"held": 1, "contradicted": 1, "not settled": 1, "not tested": 1}
    assert counts_text({"held": 2, "contradicted": 0, "not settled": 1}) == "2 held, 1 not settled"
    assert counts_text({}) == "no primary claim"


def test_golden_an_effect_below_half_of_the_papers_is_flagged_beside_any_verdict() -> None:
    small, large = (Statement(id="x", text="", value=value) for value in (1.5, 10.0))
    flags = [claim.is_smaller for claim in primary(above(small, CLEAR), above(large, CLEAR), below(large, -CLEAR))]
    assert flags == [False, True, False]  # the last paper number is not on the claimed side
    down = Statement(id="x", text="", value=-10.0)
    assert primary(below(down, -CLEAR))[0].is_smaller
    times = Statement(id="x", text="", value=1.4)  # a gain of 0.4 over 1
    assert primary(above(times, 1 + CLEAR / 10, than=1.0))[0].is_smaller  # 1.10 ± 0.01: a quarter of the gain
    assert not primary(above(times, 1 + CLEAR / 3, than=1.0))[0].is_smaller
    assert not primary(above(SAID, CLEAR))[0].is_smaller


def test_golden_censored_values_are_tested_by_ranks_and_shown_as_pseudo_medians() -> None:
    saved = np.array([3.0, 5.0, 2.0, 81.0, 4.0, 6.0, 7.0])  # one seed never got there: its 81 is a bound
    never = np.array([False, False, False, True, False, False, False])
    by_mean, by_rank = primary(above(SAID, saved), above(SAID, saved, never=never))
    assert by_mean.verdict == "not settled"  # the capped count is all that a t-test sees
    assert by_rank.verdict == "held"
    assert by_rank.p == pytest.approx(2 / 2**7)
    assert (by_rank.never, by_rank.spread) == (1, None)
    assert 4 <= (by_rank.ours or 0) <= 6


def test_golden_too_few_censored_values_bound_nothing() -> None:
    (claim,) = primary(above(SAID, np.array([1.0, 2.0, 4.0]), never=np.zeros(3, dtype=np.bool_)))
    assert claim.verdict == "not settled"
    assert (claim.as_dict()["low"], claim.as_dict()["high"]) == (None, None)


@given(
    st.lists(st.lists(st.floats(-2, 3), min_size=9, max_size=9, unique=True), min_size=1, max_size=4),
    st.sampled_from([(), (4, 6)]),
)
@settings(deadline=None, max_examples=60)
def test_property_verdicts_and_intervals_never_contradict_each_other(
    values: list[list[float]], looks: tuple[int]
) -> None:
    claims = [above(Statement(id=str(place), text=""), np.array(each), 0.5) for place, each in enumerate(values)]
    check_verdicts(judged(claims, [[claim.statement.id for claim in claims]], looks, 12), 0.5)


@given(
    st.lists(st.lists(st.integers(-3, 9), min_size=14, max_size=14), min_size=1, max_size=3),
    st.sampled_from([(), (6, 9)]),
)
@settings(deadline=None, max_examples=60)
def test_property_verdicts_and_intervals_agree_where_rounds_are_tied_and_censored(
    values: list[list[int]], looks: tuple[int]
) -> None:
    never = np.zeros(14, dtype=np.bool_)
    claims = [
        below(Statement(id=str(place), text=""), np.array(each, dtype=float), 3.0, never=never)
        for place, each in enumerate(values)
    ]
    check_verdicts(judged(claims, [[claim.statement.id for claim in claims]], looks, 16), 3.0)


def check_verdicts(claims: list[Claim], than: float) -> None:
    """Check that each verdict is the side of the threshold on which the interval lies."""
    for claim in claims:
        if claim.low is None or claim.high is None or abs((claim.corrected_p or 1) - 0.05) < 1e-6:
            continue
        is_above, is_below = claim.low > than, claim.high < than
        held, contradicted = (is_above, is_below) if claim.sign > 0 else (is_below, is_above)
        assert claim.verdict == ("held" if held else "contradicted" if contradicted else "not settled")


def test_property_claims_that_are_false_are_held_in_at_most_five_per_cent_of_studies() -> None:
    """Four claims of no effect, looked at after 5, 8 and 12 of 12 seeds: how often is any of them settled?"""
    rng, trials, wrong = np.random.default_rng(6), 400, 0
    for _ in range(trials):
        draws = rng.standard_normal((4, 12))
        claims = [above(Statement(id=str(place), text=""), each) for place, each in enumerate(draws)]
        wrong += any(claim.verdict == "held" for claim in judged(claims, [["0", "1", "2", "3"]], (5, 8, 12), 12))
    assert wrong / trials < 0.025 + 3 * math.sqrt(0.025 / trials)  # half of 5 %: the other half would be contradicted


def test_property_rounds_that_are_alike_are_settled_in_at_most_five_per_cent_of_studies() -> None:
    """Two claims on arms whose rounds to a target have the same law, cut off at 20, with looks at 6, 9 and 14 seeds."""
    rng, trials, wrong = np.random.default_rng(7), 150, 0
    for _ in range(trials):
        rounds = np.minimum(rng.geometric(0.06, size=(2, 2, 14)), 20).astype(float)
        never = (rounds == 20).any(axis=0)
        claims = [
            above(Statement(id=str(place), text=""), rounds[0, place] - rounds[1, place], never=never[place])
            for place in range(2)
        ]
        wrong += any(claim.verdict != "not settled" for claim in judged(claims, [["0", "1"]], (6, 9, 14), 14))
    assert wrong / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_error_a_primary_claim_that_is_not_tested_is_named() -> None:
    with pytest.raises(ConfigError, match=r"must be tested claims of the study; got 'b'"):
        judged([above(SAID, CLEAR)], [["a", "b"]])
    with pytest.raises(ConfigError, match=r"got 'a'"):
        judged([number(SAID, CLEAR)], [["a"]])


def test_golden_a_number_has_neither_interval_nor_verdict() -> None:
    (free,) = judged([number(SAID, CLEAR)])
    assert (free.verdict, free.low) == (None, None)
    assert free.ours == pytest.approx(1.0)


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


def test_golden_intervals_as_text() -> None:
    assert interval_text(-1.25, 3.5) == "−1.2 to 3.5"
    assert interval_text(None, None) == "–"
    assert interval_text(None, 3.5) == "any to 3.50"
    assert interval_text(0.004, 1.2) == "0.004 to 1.200"  # not 0.00, which would be the threshold
    assert interval_text(0.996, 1.9, 1.0) == "0.996 to 1.900"
    assert interval_text(0.0, 1.2) == "0.00 to 1.20"


def test_contract_seeds_begin_after_those_that_a_cap_was_chosen_with() -> None:
    studies = {name: next(iter(study.studies("small").values())) for name, study in shipped().items()}
    for name, study in studies.items():
        about = shipped()[name].about
        assert min(study.all_seeds) == about.first_seed, name
    assert min(studies["maxfl"].all_seeds) == 300
    assert min(studies["safari-table1"].all_seeds) == 100
