"""How each kind of work runs: guessed from shapes, refined in real rounds, or as a journal or this machine remembers.

A way changes the last digits of sums, so a resumed study must run every round as it was run. The journal has the way
of a round before it has the round: a search keeps the way of each of its rounds, and when it settles on one, all later
rounds run so. A round is named by the number of its run group and its own number, which follow from the study's state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from turnout.engine.vectorised.autotune import Execution, execution_of
from turnout.engine.vectorised.search import Search, Trial
from turnout.engine.watch import Watch
from turnout.untrusted_input import count_of

Place = tuple[int, int]  # number of the run group, round
GUESSED = "guessed from its shapes"
REMEMBERED = "remembered from an earlier study on this machine"
SEARCHING = "the fastest way so far; others are being tried"
MOST_WHY = 200  # characters that are believed of a journal


def _forget(execution: Execution) -> None:
    pass


@dataclass(slots=True)
class Tuning:
    """How one kind of work runs, and why."""

    execution: Execution  # of all rounds but those below
    why: str = GUESSED
    is_settled: bool = False  # whether it was measured; a guess may still be refined, also after a study was resumed
    rounds: dict[Place, Execution] = field(default_factory=dict)  # the way of each round of a search
    search: Search | None = None  # None: none is open
    remember: Callable[[Execution], None] = _forget  # called with the way that a search settles on

    def searching(self, options: Sequence[Execution], remember: Callable[[Execution], None]) -> "Tuning":
        """Open a search that begins with this way; what it settles on after it has tried all is remembered."""
        later = sorted(options, key=lambda option: option.threads > 1)  # what may go wrong most is tried last
        self.search, self.remember = Search(list(dict.fromkeys([self.execution, *later]))), remember
        return self

    def trial(self, watch: Watch, round: int) -> Trial:
        """Return how to run a round: as it was run before, as the search wants it, or as was settled on."""
        place = (watch.group, round)
        if place in self.rounds or self.search is None:
            return Trial(self.rounds.get(place, self.execution))
        wanted = self.search.following(watch.rounds_ahead)
        if wanted is None:
            self._close(self.search)
            return Trial(self.execution)
        self.rounds[place] = wanted.execution
        return wanted

    def add(self, execution: Execution, seconds: float, client_steps: int) -> None:
        """Add a round that was run this way."""
        if self.search is not None:
            self.search.add(execution, seconds, client_steps)
            self._note(self.search)

    def give_up(self, watch: Watch, round: int, seconds: float) -> Execution:
        """Leave out the way of a round that took too long, and return the way in which to run the round instead."""
        assert self.search is not None
        self.search.give_up(self.rounds[watch.group, round], seconds)
        self._note(self.search)
        self.rounds[watch.group, round] = self.execution
        return self.execution

    def _note(self, search: Search) -> None:
        if search.tried:
            self.execution, self.why = search.best, SEARCHING

    def plain(self) -> dict[str, Any]:
        """Return plain values, for a journal; a guess that was all that was tried has no rounds of its own."""
        is_guess = set(self.rounds.values()) <= {self.execution}
        rounds = [] if is_guess else [[*place, asdict(way)] for place, way in sorted(self.rounds.items())]
        return {**asdict(self.execution), "why": self.why, "settled": self.is_settled, "rounds": rounds}

    def _close(self, search: Search) -> None:
        self.execution, self.search = search.best, None
        self.rounds = {place: way for place, way in self.rounds.items() if way != self.execution}
        if search.tried:
            self.is_settled = True
            if search.is_complete:
                self.remember(self.execution)
            self.why = f"chosen from {len(search.seen)} ways in {search.lost_seconds:.1f} s"


def tuning_of(known: Mapping[str, Any]) -> Tuning:
    """Return what a journal remembers; raises a LookupError, TypeError or ValueError for what is none."""
    execution = execution_of(known)
    rounds = {
        (count_of(group, "run group"), count_of(round, "round")): execution_of(way)
        for group, round, way in known["rounds"]
    }
    return Tuning(execution, str(known["why"])[:MOST_WHY], known["settled"] is True, rounds)


def describe(tuning: Mapping[str, Mapping[str, Any]]) -> str:
    """Say how the work of a study ran and why, in a line; empty where there was nothing to choose."""
    ways = dict.fromkeys(f"{execution_of(known).describe()}; {known['why']}" for known in tuning.values())
    return " / ".join(ways)
