"""Statistics over seeds. Arms that share their data share randomness, so differences are taken seed by seed.

    paired      d_s = a_s − b_s                          one per seed s that both arms have
                d̄ ± t_{n−1} · sd(d) / √n                 Student's interval
                d_z = d̄ / sd(d)                          Cohen's effect size
    unpaired    d̄ = ā − b̄                                arms that share no randomness
                d̄ ± t_ν · √(s_a²/n_a + s_b²/n_b)         Welch's interval and degrees of freedom ν
                d = d̄ / √((s_a² + s_b²) / 2)
    m arms      p̃_(i) = max_{j≤i} min(1, (m − j + 1) · p_(j))     Holm, p_(1) ≤ … ≤ p_(m)
                a_(i) = 0.05 / (m − min(i, r + 1) + 1)           r: how many are clear, p̃ < 0.05
    to target   S(c) = Π_{c_k ≤ c} (1 − d_k / n_k)       d_k of the n_k seeds that ran so far reach it at cost c_k

Holm's method decides comparisons in steps, from the smallest p-value on, and stops at the first that is not clear.
Each interval has the level 1 − a of the step at which its comparison was decided. So p-values and intervals agree: an
interval excludes zero exactly if its corrected p-value is below 0.05. The chance that any of the decisions is wrong is
at most 5 %; each interval covers its own difference with at least 95 %. (Bonferroni's intervals cover all differences
at once, but are wider, and would include zero where Holm's method rejects it.)

A value that cannot be computed is None, never NaN: there is no spread with fewer than two seeds, and no interval or
test if every seed gives the same difference, because then the seeds are not independent evidence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from turnout.analysis.power import seeds_needed, smallest_difference
from turnout.array_types import Floats

ALPHA = 0.05  # error rate of all comparisons together
LEVEL = 1 - ALPHA
SAME = 1e-12  # differences whose range is below this share of the values differ by rounding only


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean and spread of one arm's values over seeds."""

    count: int
    mean: float | None
    std: float | None  # ddof = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of two arms; its interval and corrected p-values agree (Holm's method over all compared arms)."""

    is_paired: bool  # taken seed by seed; False: between two independent groups of seeds
    seeds: int  # pairs; where not paired, the number of seeds of the arm that has fewer
    mean: float  # d̄
    agreeing: int | None = None  # seeds in which the difference has the sign of the mean; None where not paired
    low: float | None = None
    high: float | None = None
    t_test_p: float | None = None
    signed_rank_p: float | None = None  # None where not paired
    corrected_p: float | None = None  # the t-test's
    corrected_signed_rank_p: float | None = None
    effect_size: float | None = None  # d_z, or d
    error: float | None = None  # standard error of the mean
    degrees: float | None = None  # degrees of freedom of the t-test
    level: float = ALPHA  # significance level of its own test, after correction
    smallest: float | None = None  # smallest difference that these seeds tell with a power of 80 %
    seeds_needed: int | None = None  # seeds that tell a difference of this size with a power of 80 %; None: too many

    @property
    def is_clear(self) -> bool:
        """Whether the difference is told from none after correction."""
        return self.corrected_p is not None and self.corrected_p < ALPHA


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The cost to reach a target, over seeds; a seed that never reached it is a censored observation."""

    seeds: int
    reached: int
    median: float | None  # None if it lies beyond the rounds that were run


def summarise(values: Floats) -> Summary:
    """Return mean and standard deviation over seeds; None for both if a value is not finite."""
    count = len(values)
    if not count or not np.isfinite(values).all():
        return Summary(count=count, mean=None, std=None)
    return Summary(count=count, mean=float(values.mean()), std=float(values.std(ddof=1)) if count > 1 else None)


def paired(ours: Floats, theirs: Floats, *, level: float = ALPHA) -> Difference | None:
    """Return the difference of two arms, taken seed by seed; None if there is no pair or a value is not finite.

    Args:
        ours: one value per seed.
        theirs: the other arm's values, of the same seeds.
        level: significance level a of this comparison; its intervals have the level 1 − a.
    """
    pairs = len(ours)
    if not pairs or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    difference = ours - theirs
    rounding = _rounding(ours, theirs)
    mean = _rounded(float(difference.mean()), rounding)
    test = mean_test(difference, level, rounding)
    if test is None:
        return Difference(is_paired=True, seeds=pairs, mean=mean, agreeing=pairs)
    return Difference(
        is_paired=True,
        seeds=pairs,
        mean=mean,
        agreeing=int((np.sign(difference) == np.sign(mean)).sum()),
        low=test.low,
        high=test.high,
        t_test_p=test.p,
        signed_rank_p=signed_rank_p(np.rint(difference / rounding)),  # so that rounding makes or breaks no tie
        corrected_p=test.p,
        effect_size=mean / (test.error * math.sqrt(pairs)),
        **_outlook(mean, test.error, pairs - 1, pairs, level),
    )


def unpaired(ours: Floats, theirs: Floats, *, level: float = ALPHA) -> Difference | None:
    """Return the difference of two arms that share no randomness; None if a value is missing or not finite.

    Reference: Welch. The generalization of "Student's" problem. Biometrika 34, 1947.
    """
    from scipy import stats  # two seconds to import: only where it is used

    seeds = min(len(ours), len(theirs))
    if not seeds or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    rounding = _rounding(ours, theirs)
    mean = _rounded(float(ours.mean() - theirs.mean()), rounding)
    if seeds < 2 or max(np.ptp(ours), np.ptp(theirs)) <= rounding:
        return Difference(is_paired=False, seeds=seeds, mean=mean)
    test = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = test.confidence_interval(1 - level)
    variances = float(ours.var(ddof=1)), float(theirs.var(ddof=1))
    error = math.sqrt(variances[0] / len(ours) + variances[1] / len(theirs))
    return Difference(
        is_paired=False,
        seeds=seeds,
        mean=mean,
        low=float(interval.low),
        high=float(interval.high),
        t_test_p=float(test.pvalue),
        corrected_p=float(test.pvalue),
        effect_size=mean / math.sqrt(sum(variances) / 2),
        **_outlook(mean, error, float(test.df), seeds, level),
    )


class MeanTest(NamedTuple):
    """Student's t-test of a mean."""

    p: float
    low: float
    high: float
    error: float  # standard error of the mean


def mean_test(values: Floats, level: float = ALPHA, rounding: float = 0.0) -> MeanTest | None:
    """Return the t-test that the mean is zero, with its interval; None with one value, or if all are the same.

    Args:
        values: one per seed, finite.
        level: significance level a; the interval has the level 1 − a.
        rounding: values that differ by no more than this are the same.
    """
    from scipy import special  # a quarter of a second to import

    count = len(values)
    if count < 2 or np.ptp(values) <= rounding:
        return None
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(count)
    reach = -float(special.stdtrit(count - 1, level / 2)) * error
    p = 2.0 * float(special.stdtr(count - 1, -abs(mean) / error))
    return MeanTest(p, mean - reach, mean + reach, error)


def _outlook(mean: float, error: float, degrees: float, seeds: int, level: float) -> dict[str, Any]:
    """Return what the seeds could have told, and how many would tell a difference of this size."""
    needed = None if mean == 0 else seeds_needed(mean, error * math.sqrt(seeds), level)
    return {
        "error": error,
        "degrees": degrees,
        "level": level,
        "smallest": smallest_difference(error, degrees, level),
        "seeds_needed": needed,
    }


def _rounding(ours: Floats, theirs: Floats) -> float:
    return SAME * float(max(np.abs(ours).max(), np.abs(theirs).max()))


def _rounded(mean: float, rounding: float) -> float:
    return 0.0 if abs(mean) <= rounding else mean


def signed_rank_p(difference: Floats) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test, exact with ties too; zeros are left out.

    Under the null hypothesis every pattern of signs is equally likely, so the probability of each rank sum is counted.
    (With ties, scipy uses the normal approximation, which is far off for a handful of seeds.)
    """
    from scipy import stats  # two seconds to import: only where it is used

    moved = difference[difference != 0]
    ranks = np.rint(2 * stats.rankdata(np.abs(moved))).astype(np.int64)  # doubled: ties share half ranks
    chance = np.ones(1)
    for rank in ranks:
        chance = 0.5 * (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0)))
    above = int(ranks[moved > 0].sum())
    tail = min(chance[: above + 1].sum(), chance[above:].sum())
    return min(1.0, 2.0 * float(tail))


def signed_rank_interval_p(difference: Floats) -> float:
    """Return the p-value that is below a level exactly if signed_rank_interval at that level excludes zero.

    Differences that are zero, or tied with opposite signs, give the signed-rank test another p-value at zero than just
    beside it, and the interval is made of the shifts beside. This is the largest of the three.
    """
    sizes = np.abs(_walsh_averages(difference))
    beside = float(sizes[sizes > 0].min(initial=1.0)) / 2  # no average lies between zero and this
    return max(signed_rank_p(difference - shift) for shift in (-beside, 0.0, beside))


def signed_rank_interval(difference: Floats, level: float = ALPHA) -> tuple[float, float, float]:
    """Return the pseudo-median, after Hodges and Lehmann, and the interval of shifts that are not rejected.

    The test is the signed-rank test. The ends of the interval are means of two differences (Walsh averages). Where
    few differences leave no shift to reject, the interval is infinite.
    """
    walsh = np.sort(_walsh_averages(difference))
    centre = float(np.median(walsh))

    def is_rejected(shift: float) -> bool:
        return signed_rank_p(difference - shift) < level

    gaps = np.concatenate([[walsh[0] - 1.0], (walsh[1:] + walsh[:-1]) / 2, [walsh[-1] + 1.0]])  # between the averages
    low, high = 0, len(walsh)  # places in `gaps`; the middle one is never rejected
    if not is_rejected(float(gaps[0])):
        return centre, -math.inf, math.inf
    middle = len(walsh) // 2
    inside_low, inside_high = middle, middle
    while inside_low - low > 1:
        at = (low + inside_low) // 2
        low, inside_low = (at, inside_low) if is_rejected(float(gaps[at])) else (low, at)
    while high - inside_high > 1:
        at = (high + inside_high) // 2
        high, inside_high = (at, inside_high) if is_rejected(float(gaps[at])) else (high, at)
    return centre, float(walsh[inside_low - 1]), float(walsh[min(inside_high, len(walsh) - 1)])


def _walsh_averages(difference: Floats) -> Floats:
    """Return the mean of each two differences, and of each with itself."""
    return np.asarray(((difference[:, None] + difference[None, :]) / 2)[np.triu_indices(len(difference))])


class Step(NamedTuple):
    """The step of Holm's method at which a comparison was decided."""

    corrected_p: float
    level: float  # the significance level a of the step: p < a exactly if the corrected p-value is below ALPHA


def holm(p_values: Sequence[float | None]) -> list[Step | None]:
    """Return the step that decides each p-value; None stays None and is not counted.

    Reference: Holm. A simple sequentially rejective multiple test procedure. Scand. J. Statist. 6, 1979.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    steps: list[Step | None] = [None] * len(p_values)
    largest, left = 0.0, len(known)  # `left` comparisons are not clear so far
    for position, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - position) * p))
        steps[place] = Step(largest, ALPHA / left)
        left -= largest < ALPHA
    return steps


def first_reached(values: Floats, target: float, *, higher_is_better: bool) -> int | None:
    """Return the first index at which the value reaches the target; None if none does."""
    good = values >= target if higher_is_better else values <= target
    return int(good.argmax()) if good.any() else None


def to_target(costs: Sequence[float], got_there: Sequence[bool]) -> Reached:
    """Return the median cost to reach a target, one cost per seed, by the Kaplan-Meier estimate.

    Args:
        costs: the cost of a seed when it reached the target, or its total cost if it never did.
        got_there: whether the seed reached the target.
    """
    from scipy import stats  # two seconds to import: only where it is used

    reached = sum(got_there)
    if not reached:
        return Reached(seeds=len(costs), reached=0, median=None)
    spent, there = np.asarray(costs, dtype=np.float64), np.asarray(got_there, dtype=np.bool_)
    still_out = stats.ecdf(stats.CensoredData(spent[there], right=spent[~there])).sf  # the share not yet there
    places, shares = still_out.quantiles, still_out.probabilities
    dropped = np.flatnonzero(np.diff(shares, prepend=1.0) < 0)  # costs at which some seed got there
    half = next((at for at in dropped if shares[at] <= 0.5 + SAME), None)
    if half is None:
        return Reached(seeds=len(costs), reached=reached, median=None)
    if shares[half] < 0.5 - SAME:
        return Reached(seeds=len(costs), reached=reached, median=float(places[half]))
    later = dropped[dropped > half]  # exactly half are there: the middle between this cost and the next
    median = (places[half] + places[later[0]]) / 2 if len(later) else None
    return Reached(seeds=len(costs), reached=reached, median=None if median is None else float(median))
