"""Runs a shipped study and tests its claims; each cell is an ordinary study."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnout.engine import Vectorised
from turnout.errors import UpdateError
from turnout.journal import load
from turnout.journal.load import Loaded
from turnout.report import write_report
from turnout.reproduce.claims import Claim, Outcome, value_text, with_verdicts
from turnout.reproduce.shipped import Shipped
from turnout.reproduce.timing import Timed
from turnout.study import Study
from turnout.study.running import failure_text

RESULT = "result.json"
SECONDS = "seconds.json"
REPORT = "report.html"
REST, WRITING = "coordination, data and journal", "claims and report"
OnCell = Callable[[str, Study], None]  # called before a cell runs, with its name and its study


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The results of a reproduction."""

    name: str
    paper: str
    what: str
    scale: str
    seeds: int
    runs: int
    claims: tuple[Claim, ...]
    command: str
    date: str
    version: str
    seconds: Mapping[str, float] = field(default_factory=dict)  # processor time by activity
    notes: tuple[str, ...] = ()

    @property
    def all_hold(self) -> bool:
        """Whether no tested claim failed."""
        return all(claim.held is not False for claim in self.claims)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        plain: dict[str, Any] = {key: getattr(self, key) for key in self.__slots__}
        claims = [claim.as_dict() for claim in self.claims]
        seconds = {kind: round(spent, 1) for kind, spent in self.seconds.items()}
        return {**plain, "claims": claims, "seconds": seconds, "notes": list(self.notes)}

    def text(self) -> str:
        """Return the verdict table."""
        lines = [("claim", "paper", "ours", "held")]
        for claim in self.claims:
            said = claim.statement
            ours = value_text(claim.ours, claim.spread, said.unit)
            lines.append((said.text, said.paper, ours, SHOWN[claim.outcome]))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


SHOWN: dict[Outcome, str] = {"held": "yes", "not held": "NO", "not tested": "not tested", "no claim": "–"}


def reproduce(
    shipped: Shipped, scale: str, out: Path, *, seeds: int | None = None, on_cell: OnCell | None = None
) -> Verdict:
    """Run what is not in the folder yet, write the reports, and return which claims held.

    Args:
        shipped: the study.
        scale: "smoke", "small" or "paper".
        out: the output folder, with a folder for each cell.
        seeds: number of seeds; None takes the study's own.
        on_cell: called with (cell, study) before each cell.
    """
    studies = shipped.studies(scale, seeds)
    spent = _read_seconds(out)
    for cell, study in studies.items():
        if on_cell is not None:
            on_cell(cell, study)
        _run(study, out / cell, spent, out / SECONDS)
    started = time.process_time()
    loaded = {cell: load(out / cell) for cell in studies}
    claims = tuple(with_verdicts(shipped.claims(loaded)))
    for cell in studies:
        write_report([out / cell], out / cell / REPORT)
    spent[WRITING] = time.process_time() - started
    verdict = _verdict(shipped, scale, seeds, loaded, claims, spent)
    (out / RESULT).write_text(json.dumps(verdict.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return verdict


def _run(study: Study, folder: Path, spent: dict[str, float], kept: Path) -> None:
    """Run one cell, and record its processor time even if it is interrupted."""
    engine = Timed(Vectorised())
    started = time.process_time()
    try:
        result = study.run(folder, engine=engine, progress=False)
    except BaseException:
        if folder.is_dir():
            _record_seconds(spent, engine, time.process_time() - started, kept)
        raise
    if not result.was_finished:
        _record_seconds(spent, engine, time.process_time() - started, kept)
    if result.failures:
        raise UpdateError(failure_text(result.failures, len(result.loaded.runs)))


def _record_seconds(spent: dict[str, float], engine: Timed, seconds: float, kept: Path) -> None:
    for kind, more in (*engine.seconds.items(), (REST, seconds - sum(engine.seconds.values()))):
        spent[kind] = spent.get(kind, 0.0) + more
    kept.write_text(json.dumps(spent), encoding="utf-8")


def _read_seconds(out: Path) -> dict[str, float]:
    kept = out / SECONDS
    return dict(json.loads(kept.read_text(encoding="utf-8"))) if kept.is_file() else {}


def _verdict(
    shipped: Shipped,
    scale: str,
    seeds: int | None,
    loaded: Mapping[str, Loaded],
    claims: tuple[Claim, ...],
    spent: Mapping[str, float],
) -> Verdict:
    runs = [each.runs for each in loaded.values()]
    about = shipped.about
    return Verdict(
        name=shipped.name,
        paper=about.paper,
        what=about.what,
        scale=scale,
        seeds=max(frame["seed"].nunique() for frame in runs),
        runs=sum(map(len, runs)),
        claims=claims,
        command=f"turnout reproduce {shipped.name} --scale {scale}" + (f" --seeds {seeds}" if seeds else ""),
        date=datetime.now(UTC).date().isoformat(),
        version=version("turnout"),
        seconds=spent,
        notes=about.notes,
    )
