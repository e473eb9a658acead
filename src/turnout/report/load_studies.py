"""What a report is made of: the studies, their arms under names of their own, and the comparison of them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from turnout.analysis.compare import Comparison, compare, names_of_arms, recorded_target
from turnout.analysis.target import Target
from turnout.errors import TurnoutError
from turnout.journal import Journal, Loaded, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm; its place among all arms of the report decides its colour."""

    name: str  # its own in this report
    own_name: str  # in its study
    study: Loaded
    seeds: tuple[int, ...]  # those shown: the finished ones, or every one where none is finished
    unfinished: int  # runs that are left out, or not finished yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Everything a report shows, as it is in the journals."""

    studies: tuple[Loaded, ...]
    arms: tuple[Arm, ...]
    comparison: Comparison | None
    verdict: str

    @property
    def title(self) -> str:
        """The names of the studies."""
        return ", ".join(dict.fromkeys(str(study.study["name"]) for study in self.studies))


def gather(folders: Sequence[Path], target: Target | None = None) -> Gathered:
    """Read the journals of these folders; costs are measured to the target given, or to the study's own."""
    studies = tuple(load(folder) for folder in folders)
    arms = tuple(
        _arm(study, own, name)
        for study, names in zip(studies, names_of_arms(studies), strict=True)
        for own, name in names.items()
    )
    comparison, verdict = _compared(studies, target)
    return Gathered(studies=studies, arms=arms, comparison=comparison, verdict=verdict)


def _arm(study: Loaded, own_name: str, name: str) -> Arm:
    runs = study.runs[study.runs["arm"] == own_name]
    finished = runs[runs["status"] == "finished"]
    shown = finished if len(finished) else runs
    return Arm(
        name=name,
        own_name=own_name,
        study=study,
        seeds=tuple(int(seed) for seed in shown["seed"]),
        unfinished=len(runs) - len(finished),
    )


def _compared(studies: Sequence[Loaded], target: Target | None) -> tuple[Comparison | None, str]:
    try:
        found = compare(studies, target=recorded_target(studies) if target is None else target)
    except TurnoutError as error:  # nothing is finished or measured: the rest can still be shown
        return None, str(error)
    return found, found.verdict()


def rounds_of(arm: Arm) -> pd.DataFrame:
    """Return the rounds of the runs that are shown."""
    rounds = arm.study.rounds
    return rounds[(rounds["arm"] == arm.own_name) & rounds["seed"].isin(arm.seeds)]


def rows_of(arm: Arm, seed: int, columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield columns of the table of rounds for one run, in the order of rounds, as far as it was loaded."""
    rounds = arm.study.rounds
    mine = rounds[(rounds["arm"] == arm.own_name) & (rounds["seed"] == seed)]["round"]
    if mine.empty:
        return
    query = (
        f"SELECT {columns} FROM round JOIN run ON run.id = round.run WHERE arm = ? AND seed = ? AND round <= ? "
        "ORDER BY round"
    )
    with ExitStack() as held:
        source = arm.study.source
        journal = source if isinstance(source, Journal) else held.enter_context(Journal.open(source))
        yield from journal.read(query, (arm.own_name, seed, int(mine.max())))
