"""The report of a running study: every seed as far as it is, and a comparison of the rounds so far."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from turnout.analysis.compare import Comparison, compare, recorded_target
from turnout.errors import TurnoutError
from turnout.journal import Journal, Loaded, frames
from turnout.report.contents import Contents, as_json, contents
from turnout.report.load_studies import Arm, Gathered
from turnout.report.sections import Section, sections
from turnout.ui.study_summary import FINISHED

UNSURE = "The study is still running. Values will change, and intervals and p-values are not valid yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStudy:
    """The contents of the live page."""

    sections: tuple[Section, ...]
    data: dict[str, Any]  # for the charts
    shape: str  # changes if charts or choices change, not if only numbers do


def live_study(folder: Path) -> LiveStudy:
    """Read a running study."""
    with Journal.open(folder) as journal:
        study = frames(journal)
        comparison, is_finished = _compared(study)
        gathered = Gathered(studies=(study,), arms=_arms(study), comparison=comparison, verdict="")
        found = contents(gathered)
    if not is_finished:
        found = _as_unfinished(found)
    parts, data = tuple(sections(found)), as_json(found)
    return LiveStudy(sections=parts, data=data, shape=_shape(parts, data))


def _arms(study: Loaded) -> tuple[Arm, ...]:
    """Return the arms with every seed that has started; a report would leave out unfinished seeds."""
    arms = []
    for name in study.arms:
        runs = study.runs[study.runs["arm"] == name]
        seeds = tuple(int(seed) for seed in runs["seed"])
        unfinished = int((runs["status"] != FINISHED).sum())
        arms.append(Arm(name=name, own_name=name, study=study, seeds=seeds, unfinished=unfinished))
    return tuple(arms)


def _compared(study: Loaded) -> tuple[Comparison | None, bool]:
    """Compare the finished runs, or else all runs at the last round that every run evaluated; say which."""
    try:
        return compare(study, target=recorded_target([study])), True
    except TurnoutError:  # nothing is finished, or nothing is measured
        pass
    measured = study.rounds[study.rounds["evaluated"]].groupby(["arm", "seed"])["round"].max()
    round = int(measured.min()) if len(measured) == len(study.runs) > 0 else 0
    if round == 0:  # models that have not moved yet
        return None, False
    cut = replace(study, runs=study.runs.assign(status=FINISHED), rounds=study.rounds[study.rounds["round"] <= round])
    try:
        return replace(compare(cut), target=None, moment=f"round {round}:"), False
    except TurnoutError:
        return None, False


def _as_unfinished(found: Contents) -> Contents:
    """Return the contents with a comparison table that says that the study is still running."""
    tables = tuple(
        replace(table, notes=[UNSURE, *table.notes]) if table.name == "comparison" else table for table in found.tables
    )
    return replace(found, tables=tables)


def _shape(parts: Sequence[Section], data: dict[str, Any]) -> str:
    def drawn(curves: list[dict[str, Any]]) -> list[Any]:
        return [(curve["arm"], curve.get("seeds", 1) > 1, len(curve["mean"]) > 1) for curve in curves]

    facts = [
        [(section.anchor, section.pictures) for section in parts],
        data["arms"],
        data["axes"],
        [(metric["label"], drawn(metric["curves"])) for metric in data["metrics"]],
        [(rank["key"], drawn(rank["curves"])) for rank in data["ranks"]],
        [(run["arm"], run["seed"], run["clients"]) for run in data["maps"]["runs"]],
    ]
    return blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()
