"""One rule of a peer beside the same rule of turnout, and turnout's states after each round."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from turnout.coordinator import Plan, State
from turnout.engine import Task, Vectorised
from turnout.protocols import Ask, Choice, Population, View
from turnout.streams import Streams
from turnout.study.driver import Run, drive

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

DOUBLE, SINGLE = 1e-12, 2e-5  # tolerances, by the precision the peer works in


@dataclass(slots=True, kw_only=True)
class Case:
    """One rule of a peer, and the plan that is the same."""

    peer: str
    rule: str  # the peer's name of it
    plan: Plan
    path: str = ""  # name of the peer's path, where it is not that of the rule
    by_size: bool = True  # clients count by their samples; else they all hold one
    tolerance: float = DOUBLE
    reason: str = ""  # why the peer must differ; none: it must agree
    is_choice: bool = False  # the reason is a choice that the paper leaves open, and no mistake
    difference: float | None = None  # the largest, over all rounds and coordinates
    does_run: bool = True  # the peer has numbers to compare
    failure: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance."""
        return self.difference is not None and self.difference <= self.tolerance

    @property
    def is_bad(self) -> bool:
        """Whether it should agree and was found not to."""
        return self.was_compared and not self.agrees and not self.reason

    @property
    def was_compared(self) -> bool:
        """Whether the peer was asked for its numbers, even if it has none."""
        return self.difference is not None or not self.does_run

    def compare(self, ours: Floats, paths: dict[str, Floats]) -> None:
        """Fill in the difference; a path that is NaN throughout is that of a rule that does not run."""
        theirs = paths[self.path or self.rule]
        self.does_run = not np.isnan(theirs).all()
        self.difference = float(np.abs(ours - theirs).max()) if self.does_run else None

    def row(self) -> list[object]:
        """Return the table's row."""
        if self.difference is None:
            return [self.peer, self.rule, "", "", "not compared" if self.does_run else "the peer does not run"]
        explained = "the peer chose otherwise" if self.is_choice else "the peer is wrong"
        verdict = "agrees" if self.agrees else explained if self.reason else "DIFFERS"
        return [self.peer, self.rule, f"{self.difference:.1e}", f"{self.tolerance:.0e}", verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCohorts:
    """Asks who the table says."""

    cohorts: Ids
    cohort_size: int | None = None

    def choose(self, pool: Ids, view: View, ask: Ask) -> Choice:
        """Return the round's row."""
        return Choice.of(self.cohorts[view.round - 1])


def states_of(task: Task, plan: Plan) -> list[State]:
    """Return the state after each round: runs of one round, of two, and so on, side by side."""
    population = Population.of(task.federation.sizes)
    runs = [
        Run(
            index=rounds,
            task=task,
            plan=replace(plan, rounds=rounds),
            state=State.start(task.layout.flatten(task.module).clone(), population),
            streams=Streams(0),
            population=population,
        )
        for rounds in range(1, plan.rounds + 1)
    ]
    return drive(runs, Vectorised("cpu", block=1000), lambda _: None)
