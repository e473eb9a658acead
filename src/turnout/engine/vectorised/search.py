"""Find the fastest way to run in real rounds: each is run in one way, and its result counts whichever way it was.

A search must pay for itself. Let T be the seconds that the rounds to come would take the fastest way known so far:

    T < 10 s                              the first way, which follows from shapes, is kept: nothing is tried
    seconds lost + two rounds ≤ T / 10    another way is tried
    seconds lost + its round ≤ T / 10     a way that was tried before is timed again

Seconds lost are those that other ways than the first took beyond what the fastest would have taken. A round that takes
what is left of the tenth, or four times as long as the fastest, is given up and run the fastest way; all its seconds
are lost then. On a busy machine, operation threads that wait for each other took a hundred times as long.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from turnout.engine.vectorised.autotune import Execution

WORTH_SECONDS = 10.0  # less work than this is done the first way
SHARE = 0.1  # of the work to come: what a search may lose
SEEN = 2  # rounds of a way before it is judged: the first also pays for buffers
TURNS = 8  # rounds of each way that is near the fastest
NEAR_AT_FIRST, NEAR = 1.6, 1.2  # times as long as the fastest, and still in: more while little was seen
FAR = 4.0  # times as long as the fastest: a round is given up, and the way with it
THREADS_HANDICAP = 1.1  # threads of an operation wait for each other where others want a core: they must win clearly


class Trial(NamedTuple):
    """The way of a round of a search, and when to give it up."""

    execution: Execution
    most_seconds_a_step: float = math.inf  # seconds per client-step


@dataclass(slots=True)
class Timed:
    """What was seen of one way."""

    rounds: int = 0
    seconds: float = 0.0
    client_steps: int = 0
    rate: float = math.inf  # seconds per client-step: the least of all rounds, for others only make it slower
    is_given_up: bool = False

    def add(self, seconds: float, client_steps: int) -> None:
        """Add one round."""
        self.rounds += 1
        self.seconds += seconds
        self.client_steps += client_steps
        self.rate = min(self.rate, seconds / client_steps)


@dataclass(slots=True)
class Search:
    """The ways worth trying, the first of which is right more often than not, and what was seen of each."""

    options: Sequence[Execution]
    seen: dict[Execution, Timed] = field(default_factory=dict)

    def add(self, execution: Execution, seconds: float, client_steps: int) -> None:
        """Add a round that was run this way."""
        if client_steps:
            self.seen.setdefault(execution, Timed()).add(seconds, client_steps)

    def give_up(self, execution: Execution, seconds: float) -> None:
        """Leave a way out from now on; these seconds are lost."""
        timed = self.seen.setdefault(execution, Timed())
        timed.seconds, timed.is_given_up = timed.seconds + seconds, True

    def following(self, rounds_ahead: float) -> Trial | None:
        """Return the way of the next round; None when enough was seen, or more would not pay."""
        first = self.options[0]
        if self._rounds(first) < SEEN:
            return Trial(first) if len(self.options) > 1 else None
        fastest = self.seen[self.best]
        steps = fastest.client_steps / fastest.rounds
        ahead = rounds_ahead * fastest.rate * steps
        if ahead < WORTH_SECONDS and not self.tried:
            return None
        left = (SHARE * ahead - self.lost_seconds) / steps  # seconds per client-step
        wanted = self._wanted()
        if wanted is None or self._at_risk(wanted, fastest.rate) > left:
            return None
        return Trial(wanted, math.inf if wanted == first else min(left, FAR * fastest.rate))

    def _wanted(self) -> Execution | None:
        """Return a way of which too little was seen, or the near one of which least was seen."""
        for option in self.options:
            if self._rounds(option) < SEEN and not self._is_given_up(option):
                return option
        near = [option for option in self.options if self._is_near(option)]
        least = min(near, key=self._rounds)
        return least if len(near) > 1 and self._rounds(least) < TURNS else None

    def _at_risk(self, option: Execution, fastest: float) -> float:
        """Return the seconds per client-step that a round of this way needs; a way not tried gets those of two."""
        if option == self.options[0]:
            return self.seen[option].rate - fastest  # it is never given up
        return self.seen[option].rate if self._rounds(option) else 2.0 * fastest

    @property
    def best(self) -> Execution:
        """The fastest way so far, or the first where none was timed."""
        timed = [option for option in self.seen if not self._is_given_up(option)]
        return min(timed, key=self._cost, default=self.options[0])

    @property
    def tried(self) -> list[Execution]:
        """The ways that were timed, but for the first."""
        return [option for option in self.seen if option != self.options[0]]

    @property
    def is_complete(self) -> bool:
        """Whether every way was tried often enough to be judged."""
        return all(self._rounds(option) >= SEEN or self._is_given_up(option) for option in self.options)

    @property
    def lost_seconds(self) -> float:
        """The seconds that other ways than the first took beyond what the fastest would have taken."""
        rate = min((timed.rate for timed in self.seen.values()), default=0.0)
        timed = [self.seen[option] for option in self.tried]
        return sum(max(0.0, each.seconds - rate * each.client_steps) for each in timed)

    def _rounds(self, option: Execution) -> int:
        return self.seen[option].rounds if option in self.seen else 0

    def _cost(self, option: Execution) -> float:
        return self.seen[option].rate * (THREADS_HANDICAP if option.threads > 1 else 1.0)

    def _is_given_up(self, option: Execution) -> bool:
        return option in self.seen and self.seen[option].is_given_up

    def _is_near(self, option: Execution) -> bool:
        within = NEAR_AT_FIRST if self._rounds(option) <= SEEN else NEAR
        return not self._is_given_up(option) and self._cost(option) <= within * self._cost(self.best)
