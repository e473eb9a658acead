"""Load the studies of a report: their journals, their arms under unique names, and the comparison of the arms."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from turnout.analysis.compare import Comparison, compare, names_of_arms, recorded_target
from turnout.analysis.target import Target
from turnout.errors import TurnoutError
from turnout.journal import Loaded, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm of a report; its position among all arms decides its colour."""

    name: str  # in this report, where it is unique
    own_name: str  # in its study
    study: Loaded
    seeds: tuple[int, ...]  # that are shown: the finished ones, or all if none is finished
    unfinished: int  # number of runs that are not finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The studies of a report as their journals hold them, and their comparison."""

    studies: tuple[Loaded, ...]
    arms: tuple[Arm, ...]
    comparison: Comparison | None
    verdict: str  # the comparison in one sentence, or why there is none

    @property
    def title(self) -> str:
        """The names of the studies."""
        return ", ".join(dict.fromkeys(str(study.study["name"]) for study in self.studies))


def gather(folders: Sequence[Path], target: Target | None = None) -> Gathered:
    """Read the journals of these folders; None as target takes the study's own."""
    studies = tuple(load(folder) for folder in folders)
    arms = tuple(
        _arm(study, own, name)
        for study, names in zip(studies, names_of_arms(studies), strict=True)
        for own, name in names.items()
    )
    comparison, verdict = _compare(studies, target)
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


def _compare(studies: Sequence[Loaded], target: Target | None) -> tuple[Comparison | None, str]:
    try:
        comparison = compare(studies, target=recorded_target(studies) if target is None else target)
    except TurnoutError as error:  # nothing is finished or measured: the report shows the rest
        return None, str(error)
    return comparison, comparison.verdict()


def rounds_of(arm: Arm) -> pd.DataFrame:
    """Return the rounds of the arm's runs that are shown."""
    rounds = arm.study.rounds
    return rounds[(rounds["arm"] == arm.own_name) & rounds["seed"].isin(arm.seeds)]
