"""Looks at seeds that are added: boundaries with their exact error rates, and decisions that intervals agree with."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from turnout.analysis.differences import Pair, decide
from turnout.analysis.sequential import Design, decisions, looks_of
from turnout.analysis.until_clear import UntilClear, planned_looks
from turnout.errors import ConfigError, JournalError

TRIALS = 40_000


def p_values(d: np.ndarray, looks: tuple[int, ...]) -> np.ndarray:
    """Return the t-test's p-values at each look, as (trials, looks)."""
    found = []
    for seeds in looks:
        seen = d[..., :seeds]
        t = seen.mean(-1) / (seen.std(-1, ddof=1) / math.sqrt(seeds))
        found.append(2 * special.stdtr(seeds - 1, -np.abs(t)))
    return np.stack(found, axis=-1)


def test_golden_each_look_has_half_as_many_seeds_again_and_the_last_has_the_most() -> None:
    assert looks_of(5, 40) == (5, 8, 12, 18, 27, 40)
    assert looks_of(6, 24) == (6, 9, 14, 21, 24)
    assert looks_of(3, 4) == (3, 4)
    assert looks_of(5, 5) == (5,)


def test_golden_the_first_boundary_is_what_is_spent_at_it() -> None:
    """The first p-value is uniform, so a_1 = s_1 = 0.05 · ln(1 + (e − 1)/4) of a quarter of the seeds."""
    (level, *_) = Design((5, 20), 20).levels(0.05)
    assert level == pytest.approx(0.05 * math.log(1 + (math.e - 1) / 4), rel=1e-6)


def test_identity_one_look_at_all_seeds_is_the_plain_test() -> None:
    assert Design((7,), 7).levels(0.05) == pytest.approx((0.05,))
    assert Design((7,), 7).p_value([0.0123]) == 0.0123
    first, second = decisions([[0.02], [0.3]], [Design((7,), 7)] * 2)
    assert first == pytest.approx((0, 0.025, 0.04))
    assert second == pytest.approx((0, 0.05, 0.3))


@pytest.mark.parametrize("looks", [(3, 5, 8, 12), (5, 8, 12, 18, 27, 40), (3, 4, 5, 6)])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_property_the_error_over_all_looks_is_the_nominal_one(looks: tuple[int, ...], alpha: float) -> None:
    """Without a difference, normal seeds cross the boundary by look k as often as is spent by then."""
    d = np.random.default_rng(1).standard_normal((TRIALS, looks[-1]))
    crossed = np.cumsum(p_values(d, looks) <= np.array(Design(looks, looks[-1]).levels(alpha)), axis=1) > 0
    spent = alpha * np.log1p((math.e - 1) * np.array(looks) / looks[-1])
    error = np.sqrt(spent * (1 - spent) / TRIALS)
    assert (np.abs(crossed.mean(axis=0) - spent) < 4 * error + 0.02 * spent).all()


def test_property_plain_tests_at_every_look_would_err_far_more_often() -> None:
    """What the boundary is for: five looks at p < 0.05 find a difference in an eighth of the trials."""
    looks = (5, 8, 12, 18, 27)
    d = np.random.default_rng(2).standard_normal((4000, looks[-1]))
    assert (p_values(d, looks) < 0.05).any(axis=1).mean() > 0.1


def test_property_a_family_errs_in_at_most_five_per_cent_of_studies() -> None:
    """Three comparisons that share a baseline, none of them a difference; any clear one is an error."""
    looks, trials = (4, 6, 9, 14), 600
    d = np.random.default_rng(3).standard_normal((trials, 4, looks[-1]))
    p = p_values(d[:, 1:] - d[:, :1], looks)
    design = Design(looks, looks[-1])
    wrong = sum(
        any(each is not None and each.is_clear for each in decisions(trial.tolist(), [design] * 3)) for trial in p
    )
    assert 0.01 < wrong / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


@pytest.mark.parametrize("is_paired", [True, False])
def test_property_arms_that_are_alike_are_told_apart_in_at_most_five_per_cent_of_studies(is_paired: bool) -> None:
    """Two arms against a baseline, with no difference but another spread, and looks at 4, 6, 9 and 12 seeds."""
    rng, trials, wrong = np.random.default_rng(8), 200, 0
    looks = UntilClear(most=12).looks(range(4))
    for _ in range(trials):
        base, *arms = rng.standard_normal((3, 12)) * [[1.0], [1.0], [2.0]]
        pairs = {
            str(arm): Pair(dict(enumerate(each)), dict(enumerate(base)), is_paired) for arm, each in enumerate(arms)
        }
        found = decide(pairs, looks).values()
        wrong += any(difference.is_clear for difference in found)
        for difference in found:
            assert difference.low is not None
            assert difference.high is not None
            assert difference.is_clear == (difference.low > 0 or difference.high < 0)
    assert wrong / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_property_a_large_difference_is_clear_early_and_a_small_one_at_the_most_seeds_or_not() -> None:
    looks = (5, 8, 12, 18)
    d = np.random.default_rng(4).standard_normal((300, looks[-1]))

    def seeds(shift: float) -> list[int | None]:
        found = []
        for p in p_values(d + shift, looks):  # as a study is run: look by look, until it is clear
            for count in range(1, len(looks) + 1):
                (each,) = decisions([p[:count].tolist()], [Design(looks[:count], looks[-1])])
                if each is not None and each.is_clear:
                    break
            found.append(looks[count - 1] if each is not None and each.is_clear else None)
        return found

    assert np.mean([each is not None and each <= 8 for each in seeds(3.0)]) > 0.95
    assert np.mean([each is None for each in seeds(0.1)]) > 0.85


@given(
    st.lists(st.lists(st.floats(1e-6, 1), min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from([(3, 5, 8), (5, 8, 12)]),
)
@settings(deadline=None)
def test_property_a_decision_is_clear_exactly_if_its_look_is_beyond_its_boundary(
    p: list[list[float]], looks: tuple[int, ...]
) -> None:
    design = Design(looks, looks[-1] + 4)
    for each, decision in zip(p, decisions(p, [design] * len(p)), strict=True):
        assert decision is not None
        if abs(decision.corrected_p - 0.05) > 1e-6:
            assert decision.is_clear == (each[decision.look] <= decision.level)
        assert decision.corrected_p >= min(each) * 0.999


def test_golden_a_comparison_without_a_p_value_is_not_decided_and_not_counted() -> None:
    one = Design((5,), 5)
    none, some = decisions([[None], [0.04]], [one, one])
    assert none is None
    assert some == pytest.approx((0, 0.05, 0.04))
    late = decisions([[None, 0.001]], [Design((5, 8), 8)])[0]
    assert late is not None
    assert late.look == 1


@given(
    st.lists(st.lists(st.floats(-2, 4), min_size=12, max_size=12, unique=True), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_property_an_interval_leaves_out_zero_exactly_where_the_corrected_test_rejects(
    values: list[list[float]], is_paired: bool, in_looks: bool
) -> None:
    base = dict(enumerate(0.01 * np.arange(12.0)))
    pairs = {str(arm): Pair(dict(enumerate(each)), base, is_paired) for arm, each in enumerate(values)}
    looks = UntilClear(most=12).looks(range(4)) if in_looks else None
    for difference in decide(pairs, looks).values():
        assert difference.corrected_p is not None
        assert difference.low is not None
        assert difference.high is not None
        if abs(difference.corrected_p - 0.05) > 1e-6:
            assert (difference.low > 0 or difference.high < 0) == difference.is_clear


def test_golden_a_comparison_that_was_clear_early_stays_so_with_the_seeds_of_that_look() -> None:
    early = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, -9.0, -9.0]  # clear over six seeds, and not over eight
    looks = UntilClear(most=8).looks(range(6))
    assert [len(seeds) for seeds in looks] == [6, 8]
    base = dict.fromkeys(range(8), 0.0)
    (difference,) = decide({"a": Pair(dict(enumerate(early)), base, True)}, looks).values()
    assert difference.is_clear
    assert difference.seeds == 6
    assert difference.mean == pytest.approx(1.0)
    (whole,) = decide({"a": Pair(dict(enumerate(early)), base, True)}).values()
    assert not whole.is_clear


def test_golden_seeds_that_are_added_follow_the_largest_one() -> None:
    assert UntilClear(most=6).looks([7, 3, 5]) == ((3, 5, 7), (3, 5, 7, 8, 9, 10))
    assert planned_looks({"seeds": 3, "until_clear": {"most": 5}}) == ((0, 1, 2), (0, 1, 2, 3, 4))
    assert planned_looks({"seeds": 3, "until_clear": None}) is None
    assert planned_looks({}) is None


@pytest.mark.parametrize("config", [{"seeds": "x"}, {"seeds": []}, {"seeds": [0.5]}, {"seeds": 3, "until_clear": 7}])
def test_error_a_journal_with_other_looks_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(JournalError, match="not those of a study"):
        planned_looks({"until_clear": {"most": 5}, **config})


def test_error_too_few_seeds_name_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"UntilClear needs most in \[3, 100,000\]; got 2. Change until_clear.most"):
        UntilClear(most=2)


def test_golden_interim_p_values_count_for_less_the_more_looks_there_are() -> None:
    p = 0.02
    assert Design((10,), 10).p_value([p]) == p
    assert p < Design((10,), 20).p_value([p]) < Design((10,), 40).p_value([p])
    assert float(stats.t.sf(1, 9)) > 0  # scipy is the reference of p_values above
