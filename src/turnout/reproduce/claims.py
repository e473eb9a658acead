"""Claims of a paper, judged on our runs: paired by seed, by their intervals.

    held           the interval lies on the claimed side of the threshold
    contradicted   it lies on the other side
    not settled    it includes the threshold
    not tested     no test was possible: one seed, or the same value in each

A study has at most six primary claims, in families; these alone are judged. Holm's method corrects over each family,
and over the looks where seeds were added until the claims were settled (`turnout.analysis.sequential`). Each interval
has the level at which its claim was decided, so verdicts and intervals agree. Every other claim is secondary: it has a
95 % interval of its own and no verdict. An identity is checked in each seed, not tested, and has no verdict either. A
number has neither: it is shown next to the paper's number.

Values that a run may never reach, such as rounds to a target, are censored: the value of such a seed is a bound. They
are tested by the signed-rank test, which is valid then too (with no effect each sign is as likely as the other), and
are shown as pseudo-medians with the number of seeds that never got there.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from turnout.analysis.power import seeds_needed, smallest_difference
from turnout.analysis.sequential import Decision, Design, decisions
from turnout.analysis.statistics import (
    ALPHA,
    SAME,
    MeanTest,
    mean_test,
    signed_rank_interval,
    signed_rank_interval_p,
    summarise,
)
from turnout.array_types import Bools, Floats
from turnout.errors import ConfigError
from turnout.number_format import decimals

MOST_PRIMARY = 6  # primary claims of a study
HALF = 0.5  # an effect whose bound is below this share of the paper's is smaller than the paper's
UNITS_WITHOUT_SPACE = ("", "×")  # units that follow a number without a space
MANY_SEEDS = 1000  # more seeds than this are not counted

Verdict = Literal["held", "contradicted", "not settled", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("held", "contradicted", "not settled", "not tested")
Kind = Literal["tested", "identity", "number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement of a paper, or of our own."""

    id: str
    text: str
    paper: str = ""  # the paper's number or words
    value: float | None = None  # the paper's number, where there is one to compare the size of an effect with
    unit: str = ""  # unit of our value
    note: str = ""  # why our value differs, or a remark


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement with our result; `judged` sets what comes of the test."""

    statement: Statement
    kind: Kind
    values: Floats = field(repr=False, compare=False)  # one per seed
    than: float = 0.0  # the threshold
    sign: int = 1  # 1: the values are claimed to lie above the threshold, −1: below
    never: int | None = None  # seeds whose value is only a bound, because a target was never reached; None: no target
    is_exact: bool | None = None  # of an identity: whether it is true in every seed
    is_primary: bool = False
    is_ours: bool = False  # a claim of ours, not of the paper
    ours: float | None = None  # mean over seeds, or the pseudo-median of censored values; None: not finite
    spread: float | None = None  # standard deviation over seeds; None with one seed, or of censored values
    seeds: int = 0  # seeds that the interval is of
    low: float | None = None  # the interval; None: no test was possible
    high: float | None = None
    p: float | None = None  # of the test at the deciding look; None: no test was possible
    corrected_p: float | None = None  # of a primary claim
    verdict: Verdict | None = None  # of a primary claim
    is_smaller: bool = False  # whether the effect is below half of the paper's
    smallest: float | None = None  # smallest effect that these seeds show with a power of 80 %
    seeds_needed: int | None = None  # seeds that would settle an effect of this size; None: too many to count

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values; infinite ends of an interval are None."""
        plain = {key: value for key, value in asdict(self).items() if key != "values"}
        for end in ("low", "high", "smallest"):
            plain[end] = plain[end] if plain[end] is not None and math.isfinite(plain[end]) else None
        return {**plain.pop("statement"), **plain}


def above(statement: Statement, values: Floats, than: float = 0.0, *, never: Bools | None = None) -> Claim:
    """Claim that values, one per seed, lie above a number; `than` may be a margin: not worse by 1 is than = −1.

    Args:
        statement: what is claimed.
        values: one per seed.
        than: the threshold.
        never: of values that count up to a target, which seeds never reached it, so that their value is a bound.
    """
    return _claim(statement, values, than, 1, never)


def below(statement: Statement, values: Floats, than: float = 0.0, *, never: Bools | None = None) -> Claim:
    """Claim that values, one per seed, lie below a number."""
    return _claim(statement, values, than, -1, never)


def _claim(statement: Statement, values: Floats, than: float, sign: int, never: Bools | None) -> Claim:
    values = np.asarray(values, dtype=float)
    missed = None if never is None else int(np.sum(never))
    return Claim(statement=statement, kind="tested", values=values, than=than, sign=sign, never=missed)


def exactly(statement: Statement, values: Floats, tolerance: float = 0.0) -> Claim:
    """Claim that values, one per seed, are zero: an identity, which is checked and not tested."""
    off = np.abs(np.asarray(values, dtype=float))
    is_exact = bool(len(off)) and bool((off <= tolerance).all())  # a NaN is not
    return Claim(statement=statement, kind="identity", values=off, is_exact=is_exact)


def number(statement: Statement, values: Floats, *, never: Bools | None = None) -> Claim:
    """Put our number beside the paper's, without a test."""
    missed = None if never is None else int(np.sum(never))
    return Claim(statement=statement, kind="number", values=np.asarray(values, dtype=float), never=missed)


def our_own(claim: Claim) -> Claim:
    """Return a claim marked as ours: the paper does not make it."""
    return replace(claim, is_ours=True)


def judged(
    claims: Sequence[Claim],
    primary: Sequence[Sequence[str]] = (),
    looks: Sequence[int] = (),
    most: int = 0,
) -> list[Claim]:
    """Return the claims with their intervals, and the primary ones with their verdicts.

    Args:
        claims: the claims of a study.
        primary: the ids of the primary claims, by family; Holm's method corrects over each family.
        looks: the number of seeds at each look so far; none: one look, at all seeds.
        most: the number of seeds at the last look that may be made.
    """
    by_id = {claim.statement.id: claim for claim in claims}
    if unknown := [id for family in primary for id in family if id not in by_id or by_id[id].kind != "tested"]:
        raise ConfigError(f"Primary claims must be tested claims of the study; got {', '.join(map(repr, unknown))}.")
    decided: dict[str, tuple[Design, Decision | None]] = {}
    for family in primary:
        members = [by_id[id] for id in family]
        designs = [_design(claim, looks, most) for claim in members]
        tests = [[_test(each, seeds) for seeds in design.looks] for each, design in zip(members, designs, strict=True)]
        found = decisions([[None if test is None else test.p for test in each] for each in tests], designs)
        decided |= dict(zip(family, zip(designs, found, strict=True), strict=True))
    return [_with_result(claim, decided.get(claim.statement.id)) for claim in claims]


def _design(claim: Claim, looks: Sequence[int], most: int) -> Design:
    count = len(claim.values)
    before = [seeds for seeds in looks if 2 <= seeds < count]
    return Design((*before, max(count, 2)), most)


def _with_result(claim: Claim, decided: tuple[Design, Decision | None] | None) -> Claim:
    """Return a claim with its estimate and interval; a primary one at the look and level at which it was decided."""
    claim = replace(claim, is_primary=decided is not None)
    if decided is None or decided[1] is None:
        shown = _with_interval(claim, len(claim.values), ALPHA)
        return replace(shown, verdict="not tested") if decided is not None else shown
    design, decision = decided
    assert decision is not None
    shown = _with_interval(claim, design.looks[decision.look], decision.level)
    return replace(shown, corrected_p=decision.corrected_p, verdict=_verdict(shown, decision))


def _verdict(claim: Claim, decision: Decision) -> Verdict:
    assert claim.ours is not None
    if not decision.is_clear:
        return "not settled"
    return "held" if claim.sign * (claim.ours - claim.than) > 0 else "contradicted"


def _with_interval(claim: Claim, seeds: int, level: float) -> Claim:
    """Return a claim with its estimate over the first seeds, and its interval at this level if it can be tested."""
    values = claim.values[:seeds]
    summary = summarise(values)
    claim = replace(claim, ours=summary.mean, spread=summary.std, seeds=len(values))
    if claim.never is not None and summary.mean is not None and len(values):
        claim = replace(claim, ours=signed_rank_interval(values)[0], spread=None)
    test = _test(claim, seeds, level) if claim.kind == "tested" else None
    if test is None or claim.ours is None:
        return claim
    effect, std = abs(claim.ours - claim.than), test.error * math.sqrt(len(values))
    measured = replace(
        claim,
        p=test.p,
        low=claim.than + test.low,
        high=claim.than + test.high,
        smallest=smallest_difference(test.error, len(values) - 1, level),
        seeds_needed=seeds_needed(effect, std, level) if effect else None,
    )
    return replace(measured, is_smaller=_is_smaller(measured))


def _is_smaller(claim: Claim) -> bool:
    """Whether the largest effect that the interval allows is below half of the paper's; False without its number."""
    if claim.statement.value is None or claim.low is None or claim.high is None:
        return False
    said = claim.sign * (claim.statement.value - claim.than)
    ours = claim.sign * ((claim.high if claim.sign > 0 else claim.low) - claim.than)
    return said > 0 and ours < HALF * said


def _test(claim: Claim, seeds: int, level: float = ALPHA) -> MeanTest | None:
    """Return the test of the first seeds' values against the threshold; None if no test is possible.

    The t-test, or the signed-rank test of censored values.
    """
    gain = claim.values[:seeds] - claim.than
    if not np.isfinite(gain).all():
        return None
    rounding = SAME * float(np.abs(claim.values[:seeds]).max(initial=0.0))
    test = mean_test(gain, level, rounding)
    if test is None or claim.never is None:
        return test
    gain = rounding * np.rint(gain / rounding)  # so that rounding makes or breaks no tie
    _, low, high = signed_rank_interval(gain, level)
    return MeanTest(signed_rank_interval_p(gain), low, high, test.error)


def counts(claims: Sequence[Claim]) -> dict[Verdict, int]:
    """Return how many primary claims have each verdict."""
    return {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}


def counts_text(counted: Mapping[str, int]) -> str:
    """Return the counts of verdicts in words, without those that are zero."""
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.items() if count) or "no primary claim"


def value_text(ours: float | None, spread: float | None, unit: str) -> str:
    """Return a mean and its spread as text, to the digits that the spread allows."""
    if ours is None:
        return "not finite"
    digits = _digits(ours, spread)
    text = _signed(ours, digits) + (f" ± {_plain(spread, digits)}" if spread else "")
    return f"{text}{'' if unit in UNITS_WITHOUT_SPACE else ' '}{unit}"


def interval_text(low: float | None, high: float | None, than: float = 0.0) -> str:
    """Return an interval as text, with no end rounded to the threshold; a dash if there is none.

    An end that the seeds do not bound is "any".
    """
    if low is None and high is None:
        return "–"
    known = [end for end in (low, high) if end is not None]
    digits = _digits(max(map(abs, known)), (known[-1] - known[0]) / 4 if len(known) > 1 else None)
    digits = None if digits is None else decimals(known, than, digits)
    return " to ".join("any" if end is None else _signed(end, digits) for end in (low, high))


def _digits(ours: float, spread: float | None) -> int | None:
    """Return how many decimals to show: two figures of the spread; None is scientific notation."""
    size = max(abs(ours), spread or 0.0)
    if size and not 1e-3 <= size < 1e6:
        return None
    finest = spread or abs(ours) / 10
    return min(max(1 - math.floor(math.log10(finest)), 0), 4) if finest else 0


def _plain(value: float, digits: int | None) -> str:
    return f"{value:.1e}" if digits is None else f"{value:.{digits}f}"


def _signed(value: float, digits: int | None) -> str:
    return _plain(value, digits).replace("-", "−", 1) if digits is not None else _plain(value, digits)
