"""Group-sequential tests: seeds are added in looks, and the error over all looks and comparisons stays at 5 %.

    looks       n_1 < n_2 < … < n_K                                      seeds at each look; n_K is the most
    spent       s_k = α · ln(1 + (e − 1) · n_k / n_K)                    Pocock's type, after Lan and DeMets
    boundary    P(p_1 > a_1, …, p_{k−1} > a_{k−1}, p_k <= a_k) = s_k − s_{k−1}      if there is no difference
    one look    a_1 = α

p_k is the two-sided p-value of the t-test over the first n_k seeds. Its joint distribution over looks is that of few
seeds, not the normal approximation: for normal differences d without a mean,

    U_n = Σ d / √(n Σ d²)                                                monotone in t
    U_{n+m} = (√(n R) U_n + √(m (1 − R)) V) / √(n + m)

where R ~ Beta(n/2, m/2), V is U of the m new seeds, and U_n, R and V are independent. So |U| is a Markov chain, and
each boundary follows from the one before by a sum over states.

The *sequential p-value* of a comparison is the smallest α at which one of its looks is beyond the boundary. Holm's
method over these p-values decides all comparisons of a family, because it is a closed test of Bonferroni tests. What
was clear at one look stays clear. The interval of a comparison is Student's interval at the last look that is beyond
its boundary (of the last look, where none is), at the level of that boundary: it excludes the tested value exactly if
the corrected p-value is below 5 %. Intervals at the boundary's levels hold for all looks at once.

Reference: Lan, DeMets. Discrete sequential boundaries for clinical trials. Biometrika 70, 1983.
Reference: Jennison, Turnbull. Group Sequential Methods. Chapman & Hall 2000, chapters 7 and 9.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from turnout.analysis.statistics import ALPHA, holm
from turnout.array_types import Floats

GROWTH = 1.5  # each look has about half as many seeds again as the look before
TAIL_STATES, BODY_STATES = 30, 30  # states of the chain, by their p-value: spaced by ratio below BODY, evenly above
SMALLEST, BODY = 1e-9, 0.05
NODES = 32  # at which R is evaluated
BISECTIONS = 36  # of the logarithm of α


def looks_of(first: int, most: int) -> tuple[int, ...]:
    """Return the number of seeds at each look; two or more seeds are added between two looks."""
    found = [min(first, most)]
    while found[-1] < most:
        following = max(found[-1] + 2, math.ceil(GROWTH * found[-1]))
        found.append(following if following + 2 <= most else most)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Design:
    """The looks that were made at one comparison, and the number of seeds of the last look that may be made."""

    looks: tuple[int, ...]  # seeds at each look, ascending
    most: int

    def levels(self, alpha: float) -> tuple[float, ...]:
        """Return the boundary a_k of each look: the p-value at or below which it rejects."""
        return _boundary(self.looks, max(self.most, self.looks[-1]), alpha)

    def p_value(self, p_values: Sequence[float]) -> float:
        """Return the sequential p-value of the p-values at each look."""
        if len(self.looks) == 1 and self.looks[0] >= self.most:
            return p_values[0]

        def rejects(alpha: float) -> bool:
            return any(p <= level for p, level in zip(p_values, self.levels(alpha), strict=True))

        if not rejects(1.0):
            return 1.0
        low, high = -40.0, 0.0  # logarithms of α: rejects at `high`
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if rejects(math.exp(middle)) else (middle, high)
        return math.exp(high)


class Decision(NamedTuple):
    """How one comparison of a family was decided."""

    look: int  # place of the last look that is beyond its boundary; of the last of all where none is
    level: float  # significance level of the test at that look
    corrected_p: float  # below ALPHA exactly where the test at that look rejects

    @property
    def is_clear(self) -> bool:
        """Whether the difference is told from none."""
        return self.corrected_p < ALPHA


def decisions(p_values: Sequence[Sequence[float | None]], designs: Sequence[Design]) -> list[Decision | None]:
    """Return the decision on each comparison of a family; None where the last look has no p-value.

    Args:
        p_values: of each comparison, the p-value at each of its looks; None where no test was possible.
        designs: the looks of each comparison.
    """
    known = [[1.0 if p is None else p for p in each] for each in p_values]
    sequential = [
        design.p_value(filled) if each and each[-1] is not None else None
        for each, filled, design in zip(p_values, known, designs, strict=True)
    ]
    found: list[Decision | None] = []
    for step, filled, design in zip(holm(sequential), known, designs, strict=True):
        found.append(None if step is None else _decision(step.corrected_p, step.level, filled, design))
    return found


def _decision(corrected_p: float, alpha: float, p_values: Sequence[float], design: Design) -> Decision:
    levels, last = design.levels(alpha), len(p_values) - 1
    if corrected_p >= ALPHA:
        return Decision(last, levels[last], corrected_p)
    ratios = [p / level for p, level in zip(p_values, levels, strict=True)]
    beyond = [look for look, ratio in enumerate(ratios) if ratio <= 1]
    look = beyond[-1] if beyond else int(np.argmin(ratios))  # none: the p-value is at its boundary, up to rounding
    return Decision(look, max(levels[look], p_values[look]), corrected_p)


@lru_cache(maxsize=4096)
def _boundary(looks: tuple[int, ...], most: int, alpha: float) -> tuple[float, ...]:
    edges = _edges()
    below, spent, levels = edges, 0.0, []  # at the first look the p-value is uniform
    for place, seeds in enumerate(looks):
        total = alpha * math.log1p((math.e - 1) * min(seeds / most, 1.0))
        level = float(np.interp(total - spent, below, edges))
        levels.append(level)
        if place + 1 < len(looks):
            going_on = np.diff(np.maximum(below, np.interp(level, edges, below)))  # mass of each state that continues
            below = going_on @ _transition(seeds, looks[place + 1] - seeds)
        spent = total
    return tuple(levels)


@lru_cache(maxsize=1)
def _edges() -> Floats:
    """Return the p-values between which the states of the chain lie."""
    tail = np.geomspace(SMALLEST, BODY, TAIL_STATES)
    return np.concatenate([[0.0], tail, np.linspace(BODY, 1.0, BODY_STATES + 1)[1:]])


@lru_cache(maxsize=256)
def _transition(seeds: int, more: int) -> Floats:
    """Return P(p_{k+1} <= edge | state of p_k) as (states, edges), when `more` seeds join `seeds`."""
    from scipy import special  # a quarter of a second to import

    edges = _edges()
    states = np.array([math.sqrt(low * high) if 0 < low < BODY else (low + high) / 2 for low, high in pairwise(edges)])
    u = _size(states, seeds)[:, None, None]
    y = _size(edges, seeds + more)[None, :, None]
    kept = special.betaincinv(seeds / 2, more / 2, (np.arange(NODES) + 0.5) / NODES)  # R
    old, new = np.sqrt(seeds * kept) * u, np.sqrt(more * (1 - kept))
    reach = math.sqrt(seeds + more) * y
    inside = _chance_below((reach - old) / new, more) - _chance_below((-reach - old) / new, more)
    return np.asarray(1.0 - inside.mean(axis=2))


def _size(p_values: Floats, seeds: int) -> Floats:
    """Return the |U| that has these two-sided p-values."""
    from scipy import special  # a quarter of a second to import

    return np.sqrt(1.0 - special.betaincinv((seeds - 1) / 2, 0.5, p_values))


def _chance_below(v: Floats, seeds: int) -> Floats:
    """Return P(V <= v) for the U of so many seeds."""
    from scipy import special  # a quarter of a second to import

    if seeds == 1:  # V is −1 or 1
        return np.where(v < -1, 0.0, np.where(v < 1, 0.5, 1.0))
    return 0.5 + 0.5 * np.sign(v) * special.betainc(0.5, (seeds - 1) / 2, np.minimum(v * v, 1.0))
