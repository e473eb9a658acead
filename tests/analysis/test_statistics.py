"""Each statistic against a case worked by hand, and against scipy where scipy has it."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from turnout.analysis.statistics import (
    Difference,
    Reached,
    Summary,
    first_reached,
    holm,
    paired,
    signed_rank_interval,
    signed_rank_interval_p,
    signed_rank_p,
    summarise,
    to_target,
    unpaired,
)
from turnout.number_format import decimals, p_value


def array(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_golden_mean_and_std_of_three_seeds() -> None:
    assert summarise(array(1, 2, 6)) == Summary(count=3, mean=3.0, std=math.sqrt(7))  # (4 + 1 + 9) / 2


def test_golden_one_seed_has_no_std() -> None:
    assert summarise(array(0.5)) == Summary(count=1, mean=0.5, std=None)


def test_golden_a_seed_that_diverged_leaves_no_mean() -> None:
    assert summarise(array(0.5, np.nan)) == Summary(count=2, mean=None, std=None)
    assert summarise(array(0.5, np.inf)) == Summary(count=2, mean=None, std=None)


def test_golden_paired_difference_of_three_seeds() -> None:
    # d = 1, 2, 3: mean 2, sd 1, standard error 1/√3, t(2) = 2√3, and t_{0.975}(2) = 4.302653
    result = paired(array(2, 4, 6), array(1, 2, 3))
    assert result is not None
    assert (result.seeds, result.mean, result.agreeing) == (3, 2.0, 3)
    assert result.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-6)
    assert result.high == pytest.approx(2 + 4.302653 / math.sqrt(3), abs=1e-6)
    t = 2 * math.sqrt(3)
    assert result.t_test_p == pytest.approx(1 - t / math.sqrt(2 + t * t))  # the t distribution with two degrees
    assert result.effect_size == pytest.approx(2.0)
    assert result.signed_rank_p == pytest.approx(2 / 8)  # one of eight sign patterns, on two sides


def test_golden_pairing_by_seed_sees_what_unpaired_spread_hides() -> None:
    base = array(0, 10, 20, 30)
    result = paired(base + array(1.0, 1.1, 0.9, 1.0), base)
    assert result is not None
    assert result.t_test_p is not None
    assert result.t_test_p < 0.001 < 0.5 < stats.ttest_ind(base + 1, base).pvalue


def test_golden_one_pair_claims_nothing() -> None:
    assert paired(array(3), array(1)) == Difference(is_paired=True, seeds=1, mean=2.0, agreeing=1)


def test_golden_equal_differences_leave_nothing_to_test() -> None:
    result = paired(array(0.3, 0.6, 0.9), array(0.1, 0.4, 0.7))  # 0.2 up to rounding
    assert result is not None
    assert result == Difference(is_paired=True, seeds=3, mean=result.mean, agreeing=3)
    assert result.mean == pytest.approx(0.2)


def test_golden_no_difference_at_all() -> None:
    assert paired(array(0.3, 0.6), array(0.3, 0.6)) == Difference(is_paired=True, seeds=2, mean=0.0, agreeing=2)
    assert paired(array(0, 0), array(0, 0)) == Difference(is_paired=True, seeds=2, mean=0.0, agreeing=2)


def test_golden_no_pair_or_a_diverged_one_gives_nothing() -> None:
    assert paired(array(), array()) is None
    assert paired(array(1, np.inf), array(1, np.inf)) is None


def test_golden_seeds_that_agree_with_the_mean_are_counted() -> None:
    result = paired(array(3, 3, -1, 0), array(0, 0, 0, 0))
    assert result is not None
    assert result.agreeing == 2


def test_golden_signed_rank_with_ties_is_exact() -> None:
    # |d| = 1, 1, 2 have ranks 1.5, 1.5, 3; all positive: W = 6, reached by 1 of 8 patterns
    assert signed_rank_p(array(1, 1, 2)) == pytest.approx(0.25)
    # one 1 negative: W = 4.5, and W >= 4.5 in {6, 4.5, 4.5}: 3 of 8
    assert signed_rank_p(array(-1, 1, 2)) == pytest.approx(0.75)
    # zeros are left out: 1, −2, 3 have W = 4, and W >= 4 in 3 of 8; ranked with the zero it would be 7 of 16
    assert signed_rank_p(array(0, 1, -2, 3)) == pytest.approx(0.75)


def test_golden_the_signed_rank_interval_of_five() -> None:
    # Walsh averages of 1, 2, 4, 8, 16 run from 1 to 16; W <= 0 has chance 2/32 on two sides, so at 0.07 all are kept
    centre, low, high = signed_rank_interval(array(1, 2, 4, 8, 16), 0.07)
    assert (low, high) == (1.0, 16.0)
    assert centre == float(np.median([1, 1.5, 2.5, 4.5, 8.5, 2, 3, 5, 9, 4, 6, 10, 8, 12, 16]))
    # at 0.05 not even W <= 0 is rare enough, and nothing is rejected
    assert signed_rank_interval(array(1, 2, 4, 8, 16), 0.05)[1:] == (-math.inf, math.inf)


@given(st.lists(st.integers(-40, 60), min_size=6, max_size=14), st.floats(0.04, 0.2))
def test_property_the_signed_rank_interval_agrees_with_the_test(values: list[int], level: float) -> None:
    difference = np.array(values, dtype=np.float64)
    if not difference.any():
        return
    _, low, high = signed_rank_interval(difference, level)
    p = signed_rank_interval_p(difference)
    assert (p < level) == (low > 0 or high < 0)
    assert p >= signed_rank_p(difference)
    if 0 not in values and len(set(map(abs, values))) == len(values):  # no ties, and nothing left out
        assert p == signed_rank_p(difference)


def test_golden_zeros_count_against_a_difference_as_the_interval_does() -> None:
    # six ones and four zeros: without the zeros 2 of 64 patterns are as far out, and the interval starts at zero
    difference = array(0, 0, 0, 0, 1, 1, 1, 1, 1, 1)
    assert signed_rank_p(difference) == pytest.approx(2 / 64)
    assert signed_rank_interval(difference, 0.05)[1] == 0.0
    # just above zero the zeros are below it, with four ranks of 2.5, and the ones above it, with six of 7.5
    sums = [sum(each) for each in product(*[(0, 2.5)] * 4, *[(0, 7.5)] * 6)]
    assert signed_rank_interval_p(difference) == pytest.approx(2 * sum(each <= 10 for each in sums) / 2**10)


def test_property_the_signed_rank_test_keeps_its_level_where_rounds_are_censored() -> None:
    """Both arms reach the target at rounds of the same law, cut off at 20: equal means, many ties, unequal spread."""
    rng, wrong = np.random.default_rng(5), []
    for _ in range(2000):
        rounds = np.minimum(rng.geometric(0.06, size=(2, 12)), 20)
        wrong.append(signed_rank_p((rounds[0] - rounds[1]).astype(np.float64)) < 0.05)
    assert np.mean(wrong) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_golden_rounding_neither_makes_nor_breaks_a_tie() -> None:
    ours, theirs = array(0.1, 0.4, 0.9), array(0.3, 0.2, 0.5)  # −0.2, 0.2 and 0.4 up to rounding
    result = paired(ours, theirs)
    assert result is not None
    assert signed_rank_p(ours - theirs) != result.signed_rank_p
    assert result.signed_rank_p == signed_rank_p(array(-1, 1, 2))


@given(st.lists(st.floats(-10, 10), min_size=3, max_size=12, unique_by=lambda value: round(abs(value), 3)))
def test_property_t_test_interval_and_signed_ranks_are_those_of_scipy(values: list[float]) -> None:
    difference = np.array([value for value in values if abs(value) > 1e-3])
    if len(difference) < 3:
        return
    result = paired(difference, np.zeros(len(difference)))
    assert result is not None
    ours = stats.ttest_rel(difference, np.zeros(len(difference)))
    assert result.t_test_p == pytest.approx(ours.pvalue, abs=1e-12)
    interval = ours.confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high))
    assert result.signed_rank_p == pytest.approx(stats.wilcoxon(difference, method="exact").pvalue)


def test_golden_unpaired_difference_of_two_small_groups() -> None:
    # means 4 and 1, variances 4 and 1 of 3 and 2: squared error 4/3 + 1/2 = 11/6
    ours, theirs = array(2, 4, 6), array(1 - math.sqrt(0.5), 1 + math.sqrt(0.5))
    result = unpaired(ours, theirs)
    assert result is not None
    assert (result.is_paired, result.seeds, result.agreeing, result.signed_rank_p) == (False, 2, None, None)
    assert result.mean == pytest.approx(3.0)
    degrees = (11 / 6) ** 2 / ((4 / 3) ** 2 / 2 + (1 / 2) ** 2 / 1)
    half = float(stats.t.ppf(0.975, degrees)) * math.sqrt(11 / 6)
    assert (result.low, result.high) == pytest.approx((3 - half, 3 + half))
    assert result.t_test_p == pytest.approx(2 * float(stats.t.sf(3 / math.sqrt(11 / 6), degrees)))
    assert result.effect_size == pytest.approx(3 / math.sqrt((4 + 1) / 2))


def test_golden_unpaired_groups_without_spread_or_of_one_seed_claim_nothing() -> None:
    nothing = Difference(is_paired=False, seeds=2, mean=1.0)
    assert unpaired(array(2, 2), array(1, 1, 1)) == nothing
    assert unpaired(array(2), array(1, 3)) == Difference(is_paired=False, seeds=1, mean=0.0)
    assert unpaired(array(2, np.nan), array(1, 3)) is None
    assert unpaired(array(), array(1, 3)) is None


@given(
    st.lists(st.floats(-2, 4), min_size=3, max_size=9, unique_by=lambda value: round(value, 2)),
    st.floats(0.001, 0.2),
    st.sampled_from([paired, unpaired]),
)
def test_property_an_interval_leaves_out_zero_exactly_where_the_test_rejects_at_its_level(
    values: list[float], level: float, test: Callable[..., Difference | None]
) -> None:
    other = 0.01 * np.arange(len(values))
    result = test(np.array(values), other, level=level)
    assert result is not None
    if result.t_test_p is None or abs(result.t_test_p - level) < 1e-9:
        return
    assert result.low is not None
    assert result.high is not None
    assert (result.low > 0 or result.high < 0) == (result.t_test_p < level)


def test_golden_an_interval_has_the_level_that_is_asked_for() -> None:
    among = paired(array(2, 4, 6), array(1, 2, 3), level=0.01)
    assert among is not None
    assert among.high == pytest.approx(2 + float(stats.t.ppf(1 - 0.01 / 2, 2)) / math.sqrt(3))
    assert among.level == 0.01


def corrected(p_values: list[float | None]) -> list[float | None]:
    return [None if step is None else step.corrected_p for step in holm(p_values)]


def test_golden_a_number_is_not_rounded_to_the_threshold_that_it_is_told_from() -> None:
    assert [p_value(p) for p in (0.0123, 0.0498, 0.05, 0.050004, 0.0002, None)] == [
        "0.012",
        "0.0498",
        "0.050",
        "0.050004",
        "< 0.001",
        "–",
    ]
    assert decimals([0.0, 1.2], 0.0, 1) == 1
    assert decimals([-0.004, 1.2], 0.0, 1) == 3


def test_golden_holm_of_three() -> None:
    # sorted 0.01, 0.03, 0.04: times 3, 2, 1 gives 0.03, 0.06, 0.04, and the last may not fall below the second
    assert corrected([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


def test_golden_holm_stops_at_one_and_skips_what_was_not_tested() -> None:
    assert corrected([0.9, None, 0.6]) == [1.0, None, 1.0]
    assert corrected([None, 0.2]) == [None, 0.2]
    assert corrected([]) == []


def test_golden_holm_decides_each_at_the_level_of_its_step() -> None:
    """0.01 is clear at 0.05/3; 0.03 is not at 0.05/2, and that is where 0.04 is decided too."""
    levels = [step.level for step in holm([0.04, 0.01, 0.03]) if step is not None]
    assert levels == pytest.approx([0.05 / 2, 0.05 / 3, 0.05 / 2])
    assert [step.level for step in holm([0.01, 0.02]) if step is not None] == pytest.approx([0.05 / 2, 0.05])


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=8))
def test_property_holm_rejects_exactly_where_the_p_value_is_below_its_level(values: list[float]) -> None:
    for p, step in zip(values, holm(list(values)), strict=True):
        assert step is not None
        if abs(step.corrected_p - 0.05) > 1e-9:
            assert (step.corrected_p < 0.05) == (p < step.level)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_property_holm_keeps_the_order_and_lies_between_raw_and_bonferroni(values: list[float]) -> None:
    found = np.array(corrected(list(values)), dtype=np.float64)
    raw = np.array(values)
    assert (found >= raw).all()
    assert (found <= np.minimum(1, len(raw) * raw)).all()
    order = np.argsort(raw)
    assert (np.diff(found[order]) >= 0).all()


def test_golden_the_first_place_that_reaches_a_target() -> None:
    assert first_reached(array(0.1, 0.5, 0.4, 0.6), 0.5, higher_is_better=True) == 1
    assert first_reached(array(3, 2, 1), 2, higher_is_better=False) == 1
    assert first_reached(array(0.1, np.nan), 0.5, higher_is_better=True) is None


def test_golden_the_median_of_seeds_that_all_got_there() -> None:
    assert to_target([10, 20], [True, True]) == Reached(seeds=2, reached=2, median=15.0)
    assert to_target([30, 10, 20], [True] * 3) == Reached(seeds=3, reached=3, median=20.0)
    assert to_target([10, 10, 20, 40], [True] * 4) == Reached(seeds=4, reached=4, median=15.0)


def test_golden_a_seed_stopped_late_counts_as_later_than_those_before() -> None:
    # S(10) = 2/3, S(30) = 1/3: half are there at 30
    assert to_target([10, 30, 99], [True, True, False]) == Reached(seeds=3, reached=2, median=30.0)
    # S(10) = 1/2 and it never falls further: the middle lies between 10 and never
    assert to_target([10, 99], [True, False]) == Reached(seeds=2, reached=1, median=None)


def test_golden_a_seed_stopped_early_says_nothing_of_what_comes_after() -> None:
    # stopped at 5, before anyone got there: two are left, S(10) = 1/2, S(30) = 0, and the middle is 20
    assert to_target([10, 30, 5], [True, True, False]) == Reached(seeds=3, reached=2, median=20.0)
    # stopped at 15: S(10) = 2/3, then one of one gets there at 30, S(30) = 0
    assert to_target([10, 30, 15], [True, True, False]) == Reached(seeds=3, reached=2, median=30.0)


def test_golden_nobody_got_there() -> None:
    assert to_target([50, 60], [False, False]) == Reached(seeds=2, reached=0, median=None)
    assert to_target([], []) == Reached(seeds=0, reached=0, median=None)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=15))
def test_property_without_stopped_seeds_it_is_the_plain_median(costs: list[int]) -> None:
    assert to_target(costs, [True] * len(costs)).median == pytest.approx(np.median(costs))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9), st.integers(0, 9))
def test_property_seeds_stopped_after_everyone_count_as_never(costs: list[int], stopped: int) -> None:
    found = to_target([*costs, *[21] * stopped], [True] * len(costs) + [False] * stopped)
    median = np.median([*costs, *[np.inf] * stopped])
    assert found.median == (pytest.approx(median) if np.isfinite(median) else None)
