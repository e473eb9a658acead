"""Contenders side by side: in every repetition each one runs in turn, so a noisy minute hits them all."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.apart import seconds_a_round
from benchmarks.quiet import wait_until_quiet

SHORTEST_SAMPLE = 0.1  # seconds: quicker rounds are timed several at once


class Timed(Protocol):
    """Something that can do rounds and tell how long they took."""

    @property
    def name(self) -> str:
        """What it is called in the table."""
        ...

    def seconds(self, rounds: int) -> float:
        """Return the mean seconds of so many rounds in a row."""
        ...


@dataclass(frozen=True, slots=True)
class Contender:
    """Something that can do one round, in this process."""

    name: str
    round: Callable[[], object]

    def seconds(self, rounds: int) -> float:
        """Return the mean seconds of so many rounds in a row."""
        return seconds_a_round(self.round, rounds)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds a round, one value per repetition."""

    name: str
    seconds: tuple[float, ...]
    was_quiet: bool  # whether the machine was left alone before every repetition

    @property
    def median(self) -> float:
        """The median over repetitions."""
        return statistics.median(self.seconds)

    def as_json(self) -> dict[str, object]:
        """Return plain values."""
        return {"median": self.median, "seconds": list(self.seconds), "was_quiet": self.was_quiet}


def measure(contenders: Sequence[Timed], *, repetitions: int = 5, longest_wait: float = 10.0) -> dict[str, Timing]:
    """Return the timing of each contender, interleaved, after one warm-up."""
    counts = {contender.name: rounds_per_sample(contender) for contender in contenders}
    taken: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    quiet = dict.fromkeys(taken, True)
    for _ in range(repetitions):
        for contender in contenders:
            quiet[contender.name] &= wait_until_quiet(longest=longest_wait)
            taken[contender.name].append(contender.seconds(counts[contender.name]))
    return {name: Timing(name, tuple(seconds), quiet[name]) for name, seconds in taken.items()}


def paired(
    base: Timed, other: Timed, *, repetitions: int, longest_wait: float = 10.0
) -> tuple[list[float], list[float]]:
    """Return the seconds of both, taken in turns round by round: for ratios whose bar is nearer than the noise."""
    for contender in (base, other):
        contender.seconds(1)
    wait_until_quiet(longest=longest_wait)
    both = [(base.seconds(1), other.seconds(1)) for _ in range(repetitions)]
    return [pair[0] for pair in both], [pair[1] for pair in both]


def rounds_per_sample(contender: Timed) -> int:
    """Warm up with one round, then return how many rounds make a sample long enough to trust."""
    contender.seconds(1)
    return max(1, math.ceil(SHORTEST_SAMPLE / contender.seconds(1)))
