"""Statistics over seeds. Arms that share their data share randomness, so differences are taken seed by seed.

    paired      d_s = a_s − b_s                          one per seed s that both arms have
                d̄ ± t_{n−1} · sd(d) / √n                 Student's interval
                d_z = d̄ / sd(d)                          Cohen's effect size
    unpaired    d̄ = ā − b̄                                arms that share no randomness
                d̄ ± t_ν · √(s_a²/n_a + s_b²/n_b)         Welch's interval and degrees of freedom ν
                d = d̄ / √((s_a² + s_b²) / 2)
    m arms      p̃ = min(1, m · p), intervals at 1 − 0.05 / m      Bonferroni
    Holm        p̃_(i) = max_{j≤i} min(1, (m − j + 1) · p_(j))
    to target   S(c) = Π_{c_k ≤ c} (1 − d_k / n_k)       d_k of the n_k seeds that ran so far reach it at cost c_k

Bonferroni's correction gives p-values and intervals that agree: an interval excludes zero exactly if its corrected
p-value is below 0.05. (Holm's correction is used where there are no intervals: it rejects more, but its intervals are
wider.)

A value that cannot be computed is None, never NaN: there is no spread with fewer than two seeds, and no interval or
test if every seed gives the same difference, because then the seeds are not independent evidence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from turnout.array_types import Floats
from turnout.streams import Streams

LEVEL = 0.95
RESAMPLES = 9999
SAME = 1e-12  # differences whose range is below this share of the values differ by rounding only


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Mean and spread of one arm's values over seeds."""

    count: int
    mean: float | None
    std: float | None  # ddof = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of two arms; its interval and corrected p-values hold for all compared arms at once."""

    is_paired: bool  # taken seed by seed; False: between two independent groups of seeds
    seeds: int  # pairs; where not paired, the number of seeds of the arm that has fewer
    mean: float  # d̄
    agreeing: int | None = None  # seeds in which the difference has the sign of the mean; None where not paired
    low: float | None = None
    high: float | None = None
    bootstrap_low: float | None = None
    bootstrap_high: float | None = None
    t_test_p: float | None = None
    signed_rank_p: float | None = None  # None where not paired
    corrected_p: float | None = None  # the t-test's
    corrected_signed_rank_p: float | None = None
    effect_size: float | None = None  # d_z, or d


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


def paired(ours: Floats, theirs: Floats, *, streams: Streams, comparisons: int = 1) -> Difference | None:
    """Return the difference of two arms, taken seed by seed; None if there is no pair or a value is not finite.

    Args:
        ours: one value per seed.
        theirs: the other arm's values, of the same seeds.
        streams: random streams for the bootstrap.
        comparisons: number m of differences that are tested together.
    """
    from scipy import stats  # two seconds to import: only where it is used

    pairs = len(ours)
    if not pairs or not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return None
    difference = ours - theirs
    rounding = _rounding(ours, theirs)
    mean = _rounded(float(difference.mean()), rounding)
    if pairs < 2 or np.ptp(difference) <= rounding:
        return Difference(is_paired=True, seeds=pairs, mean=mean, agreeing=pairs)
    test = stats.ttest_1samp(difference, 0.0)
    interval = test.confidence_interval(_level(comparisons))
    bootstrap = bootstrap_interval(difference, streams=streams, level=_level(comparisons))
    ranks = signed_rank_p(np.rint(difference / rounding))  # so that rounding makes or breaks no tie
    return Difference(
        is_paired=True,
        seeds=pairs,
        mean=mean,
        agreeing=int((np.sign(difference) == np.sign(mean)).sum()),
        low=float(interval.low),
        high=float(interval.high),
        bootstrap_low=bootstrap[0],
        bootstrap_high=bootstrap[1],
        t_test_p=float(test.pvalue),
        signed_rank_p=ranks,
        corrected_p=bonferroni(float(test.pvalue), comparisons),
        corrected_signed_rank_p=bonferroni(ranks, comparisons),
        effect_size=mean / float(difference.std(ddof=1)),
    )


def unpaired(ours: Floats, theirs: Floats, *, streams: Streams, comparisons: int = 1) -> Difference | None:
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
    interval = test.confidence_interval(_level(comparisons))
    bootstrap = bootstrap_interval(ours, theirs, streams=streams, level=_level(comparisons))
    return Difference(
        is_paired=False,
        seeds=seeds,
        mean=mean,
        low=float(interval.low),
        high=float(interval.high),
        bootstrap_low=bootstrap[0],
        bootstrap_high=bootstrap[1],
        t_test_p=float(test.pvalue),
        corrected_p=bonferroni(float(test.pvalue), comparisons),
        effect_size=mean / math.sqrt((float(ours.var(ddof=1)) + float(theirs.var(ddof=1))) / 2),
    )


def bonferroni(p: float, comparisons: int) -> float:
    """Return a p-value, corrected for the number of differences that are tested together."""
    return min(1.0, comparisons * p)


def _level(comparisons: int) -> float:
    """Return the confidence level of each interval so that all of them together have the level LEVEL."""
    return 1 - (1 - LEVEL) / comparisons


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


def bootstrap_interval(
    ours: Floats, theirs: Floats | None = None, *, streams: Streams, level: float = LEVEL
) -> tuple[float, float]:
    """Return the percentile interval of a mean, or of the difference of two means, over keyed resamples."""
    from scipy import stats  # two seconds to import: only where it is used

    resampled = stats.bootstrap(
        (ours,) if theirs is None else (ours, theirs),
        np.mean if theirs is None else _difference_of_means,
        n_resamples=RESAMPLES,
        confidence_level=level,
        method="percentile",
        random_state=streams.generator("bootstrap"),
    )
    return float(resampled.confidence_interval.low), float(resampled.confidence_interval.high)


def _difference_of_means(ours: Floats, theirs: Floats, axis: int = -1) -> Floats:
    return np.asarray(ours.mean(axis=axis) - theirs.mean(axis=axis))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values, corrected for their number by Holm's method; None stays None and is not counted.

    Reference: Holm. A simple sequentially rejective multiple test procedure. Scand. J. Statist. 6, 1979.
    """
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for position, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - position) * p))
        corrected[place] = largest
    return corrected


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
