"""Claims of a paper, tested on our runs: paired by seed, and corrected for the number of claims.

    a claim holds  ⇔  the mean over seeds is on the claimed side, so are more than half of the seeds, and
                      Holm's p-value, over all tested claims of the study, is below 0.05

A claim that the seeds support but that has no p-value (one seed, or the same value in each seed) is not tested: it
neither holds nor fails. An identity has no test: it holds if no seed deviates by more than the tolerance. A number has
no verdict: it is shown next to the paper's number.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from turnout.analysis.statistics import holm, paired, summarise
from turnout.array_types import Floats
from turnout.streams import Streams

SIGNIFICANCE = 0.05  # corrected p-values below this level are significant
UNITS_WITHOUT_SPACE = ("", "×")  # units that follow a number without a space


Outcome = Literal["held", "not held", "not tested", "no claim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A statement of a paper."""

    id: str
    text: str
    paper: str = ""  # the paper's number or words
    unit: str = ""  # unit of our value
    note: str = ""  # why our value differs, or a remark


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement with our result; `with_verdicts` sets `held`."""

    statement: Statement
    ours: float | None  # mean over seeds; None: not finite
    spread: float | None  # the standard deviation over seeds; None with one seed
    seeds: int
    supported: bool | None  # whether the mean and most seeds support it; None: a number, not a claim
    is_exact: bool = False  # whether it is an identity
    p: float | None = None  # p-value of the paired t-test; None: there is no test
    corrected_p: float | None = None
    held: bool | None = None  # None: a number, or a claim that could not be tested

    @property
    def outcome(self) -> Outcome:
        """The verdict on the claim."""
        return outcome_of(self.held, self.supported)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        plain = asdict(self)
        return {**plain.pop("statement"), **plain}


def above(statement: Statement, values: Floats, than: float = 0.0) -> Claim:
    """Claim that values, one per seed, lie above a number; `than` may be a margin: not worse by 1 is than = −1."""
    return _tested(statement, values, values - than)


def below(statement: Statement, values: Floats, than: float = 0.0) -> Claim:
    """Claim that values, one per seed, lie below a number."""
    return _tested(statement, values, than - values)


def exactly(statement: Statement, values: Floats, tolerance: float = 0.0) -> Claim:
    """Claim that values, one per seed, are zero."""
    off = np.abs(np.asarray(values, dtype=float))
    found = bool(len(off)) and bool((off <= tolerance).all())  # a NaN is not
    ours, spread = _mean_and_spread(off)
    return Claim(statement=statement, ours=ours, spread=spread, seeds=len(off), supported=found, is_exact=True)


def number(statement: Statement, values: Floats) -> Claim:
    """Put our number beside the paper's, without a verdict."""
    ours, spread = _mean_and_spread(np.asarray(values, dtype=float))
    return Claim(statement=statement, ours=ours, spread=spread, seeds=len(values), supported=None)


def with_verdicts(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with their verdicts, tests corrected over all of them."""
    corrected = holm([claim.p for claim in claims])
    return [replace(claim, corrected_p=p, held=_is_held(claim, p)) for claim, p in zip(claims, corrected, strict=True)]


def _is_held(claim: Claim, corrected_p: float | None) -> bool | None:
    if not claim.supported or claim.is_exact:
        return claim.supported
    return None if corrected_p is None else corrected_p < SIGNIFICANCE


def outcome_of(held: bool | None, supported: bool | None) -> Outcome:
    """Return a claim's verdict in words."""
    if held is None:
        return "no claim" if supported is None else "not tested"
    return "held" if held else "not held"


def count_text(outcomes: Sequence[Outcome]) -> str:
    """Return how many claims held of those that were tested, and how many were not tested."""
    tested = sum(outcome in ("held", "not held") for outcome in outcomes)
    untested = outcomes.count("not tested")
    return f"{outcomes.count('held')} of {tested}" + (f", {untested} not tested" if untested else "")


def _tested(statement: Statement, values: Floats, gain: Floats) -> Claim:
    gain = np.asarray(gain, dtype=float)
    ours, spread = _mean_and_spread(np.asarray(values, dtype=float))
    found = paired(gain, np.zeros(len(gain)), streams=Streams(0))
    supported = found is not None and found.mean > 0 and 2 * (found.agreeing or 0) > found.seeds
    p = None if found is None else found.t_test_p
    return Claim(statement=statement, ours=ours, spread=spread, seeds=len(gain), supported=supported, p=p)


def _mean_and_spread(values: Floats) -> tuple[float | None, float | None]:
    summary = summarise(values)
    return summary.mean, summary.std


def value_text(ours: float | None, spread: float | None, unit: str) -> str:
    """Return a mean and its spread as text, to the digits that the spread allows."""
    if ours is None:
        return "not finite"
    digits = _digits(ours, spread)
    text = _signed(ours, digits) + (f" ± {_plain(spread, digits)}" if spread else "")
    return f"{text}{'' if unit in UNITS_WITHOUT_SPACE else ' '}{unit}"


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
