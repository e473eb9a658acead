"""The differences of arms from a baseline, decided together: at one look, or at several where seeds were added."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from turnout.analysis.sequential import Decision, Design, decisions
from turnout.analysis.statistics import ALPHA, Difference, paired, unpaired
from turnout.array_types import Floats

Values = Mapping[int, float]  # by seed
Seeds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """The final values of an arm and of the baseline."""

    ours: Values
    theirs: Values
    is_paired: bool  # whether a seed gives both the same data and draws

    def at(self, seeds: Sequence[int] | None, level: float = ALPHA) -> Difference | None:
        """Return the difference over some seeds; None stands for all seeds."""
        ours, theirs = _over(self.ours, seeds), _over(self.theirs, seeds)
        if not self.is_paired:
            return unpaired(_array(ours), _array(theirs), level=level)
        shared = [seed for seed in ours if seed in theirs]
        mine, other = (_array({seed: values[seed] for seed in shared}) for values in (ours, theirs))
        return paired(mine, other, level=level)


@dataclass(frozen=True, slots=True)
class _Tested:
    """One difference at each look that can be tested."""

    pair: Pair
    looks: tuple[Seeds | None, ...]
    found: tuple[Difference, ...]
    design: Design


def decide(pairs: Mapping[str, Pair], looks: Sequence[Seeds] | None = None) -> dict[str, Difference]:
    """Return each difference with its decision; Holm's method corrects for their number.

    Args:
        pairs: the values to compare, by arm.
        looks: where seeds were added until comparisons were clear, the planned seeds of each look; None: one look.
    """
    tested = {arm: _tested(pair, looks) for arm, pair in pairs.items()}
    known = {arm: each for arm, each in tested.items() if each is not None}
    designs = [each.design for each in known.values()]
    by_t = decisions([[look.t_test_p for look in each.found] for each in known.values()], designs)
    by_rank = decisions([[look.signed_rank_p for look in each.found] for each in known.values()], designs)
    return {arm: _decided(each, by_t[place], by_rank[place]) for place, (arm, each) in enumerate(known.items())}


def _decided(tested: _Tested, decision: Decision | None, by_rank: Decision | None) -> Difference:
    if decision is None:  # no test is possible
        return tested.found[-1]
    difference = tested.pair.at(tested.looks[decision.look], decision.level)
    assert difference is not None
    corrected_rank = None if by_rank is None else by_rank.corrected_p
    return replace(difference, corrected_p=decision.corrected_p, corrected_signed_rank_p=corrected_rank)


def _tested(pair: Pair, planned: Sequence[Seeds] | None) -> _Tested | None:
    """Return the difference at each look so far; None if there is nothing to compare."""
    if planned is None:
        whole = pair.at(None)
        return None if whole is None else _Tested(pair, (None,), (whole,), Design((max(whole.seeds, 2),), 0))
    run = {*pair.ours, *pair.theirs}
    looks = [seeds for before, seeds in pairwise([(), *planned]) if run & {*seeds[len(before) :]}]
    counted: dict[int, tuple[Seeds, Difference]] = {}  # by number of pairs; a look that lost its new seeds adds none
    for seeds in looks:
        if (found := pair.at(seeds)) is not None:
            counted.setdefault(max(found.seeds, 2), (seeds, found))
    if not counted:
        return None
    seeds_at, found_at = zip(*counted.values(), strict=True)
    return _Tested(pair, seeds_at, found_at, Design(tuple(counted), len(planned[-1])))


def _over(values: Values, seeds: Sequence[int] | None) -> Values:
    chosen = None if seeds is None else set(seeds)
    return {seed: value for seed, value in values.items() if chosen is None or seed in chosen}


def _array(values: Values) -> Floats:
    return np.array(list(values.values()), dtype=np.float64)
