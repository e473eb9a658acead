"""What a rehearsal showed: the error on training samples after part of the rounds, each rule with the same draws.

The error is 1 − accuracy, or the loss where there are no class labels. With e(t) the mean over seeds of the error in
the measured rounds up to t, R rounds of rehearsal and T rounds of the study, the error is taken to fall as a power of
the rounds, half as fast as it did:

    β           max(0, log(e(R/2) / e(R)) / log 2)
    predicted   e(R) (T / R)^(−β/2)
    gain        error of FedAvg − error of the rule, at R: mean over the seeds that both have, and its standard error
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from turnout.analysis.diagnosis.estimate import Estimate, mean_of
from turnout.array_types import Floats

SHARE = 0.6  # R / T
POINTS = 12  # rounds of the rehearsal that are measured, or fewer
WINDOW = 2  # measured rounds that are averaged
FINALISTS = 3  # rules that are rehearsed with a second seed, and FedAvg
SLOWING = 0.5  # of the exponent: errors fall ever more slowly
BASELINE = "fedavg"


def rehearsed_rounds(rounds: int) -> range:
    """Return the rounds in which the error is measured, at equal steps; the rehearsal ends with the last of them."""
    last = max(1, round(SHARE * rounds))
    step = max(1, last // POINTS)
    return range(step, last + 1, step)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rehearsal:
    """The errors that rules came to in some rounds."""

    rounds: tuple[int, ...]  # that were measured; the last is R
    error_name: str  # "error" is 1 − accuracy; or "loss"
    errors: Mapping[str, Floats]  # by rule: (seeds, rounds); infinite where a run diverged
    left_out: Mapping[str, str]  # by rule that does not go with the arm: why

    @property
    def length(self) -> int:
        """R: the rounds of a run."""
        return self.rounds[-1]

    @property
    def spent_rounds(self) -> int:
        """Rounds of all runs together."""
        return self.length * sum(len(each) for each in self.errors.values())

    def error(self, rule: str) -> Estimate:
        """Return the error of a rule after R rounds, mean over seeds."""
        return mean_of(self._at(self.errors[rule], len(self.rounds)))

    def gain(self, rule: str, over: str = BASELINE) -> Estimate:
        """Return how much lower the error of a rule is than that of another, over the seeds that both have."""
        one, other = (self._at(self.errors[name], len(self.rounds)) for name in (rule, over))
        both = min(len(one), len(other))
        if not np.isfinite([*one, *other]).all():
            return Estimate(-math.inf if np.isfinite(other).all() else math.nan, math.nan)
        return mean_of(other[:both] - one[:both])

    def predicted(self, rule: str, rounds: int, seeds: int | None = None) -> float:
        """Return the error of a rule after so many rounds, from all its seeds or the first few."""
        half = max(1, sum(round <= self.length / 2 for round in self.rounds))
        own = self.errors[rule][:seeds]
        then, now = (float(self._at(own, count).mean()) for count in (half, len(self.rounds)))
        if not 0 < now < then:
            return now
        exponent = SLOWING * math.log(then / now) / math.log(self.length / self.rounds[half - 1])
        return now * math.pow(self.length / rounds, exponent)

    def ranked(self, rounds: int) -> list[str]:
        """Return the rules by their predicted error after so many rounds, lowest first.

        The first seed, which all rules have, says which rules are the best three; all seeds give the order of these.
        """
        order = sorted(self.errors, key=lambda rule: self.predicted(rule, rounds, 1))
        best = sorted(order[:FINALISTS], key=lambda rule: self.predicted(rule, rounds))
        return [*best, *order[FINALISTS:]]

    def _at(self, errors: Floats, count: int) -> Floats:
        """Return the error of each seed in the last of the first `count` measured rounds."""
        found: Floats = errors[:, max(0, count - WINDOW) : count].mean(1)
        return found
