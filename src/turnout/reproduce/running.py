"""Runs a shipped study and judges its claims; each cell is an ordinary study.

Where a study names the most seeds that it may have, seeds are added in looks until its primary claims are settled.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from turnout.engine import Vectorised
from turnout.errors import UpdateError
from turnout.journal import load
from turnout.journal.load import Loaded
from turnout.report import write_report
from turnout.reproduce.claims import Claim, counts, interval_text, judged, value_text
from turnout.reproduce.shipped import Shipped
from turnout.reproduce.timing import Timed
from turnout.study import Study
from turnout.study.running import failure_text

RESULT = "result.json"
SECONDS = "seconds.json"
REPORT = "report.html"
REST, WRITING = "coordination, data and journal", "claims and report"
ALL_HELD, CONTRADICTED, NOT_SETTLED = 0, 3, 4  # exit codes
OnCell = Callable[[str, Study, int], None]  # called before a cell runs: its name, its study and the number of seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The results of a reproduction."""

    name: str
    paper: str
    what: str
    caveat: str
    found: str
    scale: str
    seeds: int
    looks: tuple[int, ...]  # seeds at each look so far
    most: int  # seeds at the last look that could be made
    runs: int
    claims: tuple[Claim, ...]
    command: str
    date: str
    version: str
    seconds: Mapping[str, float] = field(default_factory=dict)  # processor time by activity
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0: every primary claim is held; 3: one is contradicted, or an identity is not true; 4: one is not settled."""
        found = counts(self.claims)
        if found["contradicted"] or any(claim.is_exact is False for claim in self.claims):
            return CONTRADICTED
        return NOT_SETTLED if found["not settled"] or found["not tested"] else ALL_HELD

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        plain: dict[str, Any] = {key: getattr(self, key) for key in self.__slots__}
        seconds = {kind: round(spent, 1) for kind, spent in self.seconds.items()}
        verdicts = {str(verdict): count for verdict, count in counts(self.claims).items()}
        made = {"claims": [claim.as_dict() for claim in self.claims], "seconds": seconds, "verdicts": verdicts}
        return {**plain, **made, "looks": list(self.looks), "notes": list(self.notes)}

    def text(self) -> str:
        """Return the tables: the primary claims with their verdicts, then the others."""
        main = [claim for claim in self.claims if claim.is_primary]
        rest = [claim for claim in self.claims if not claim.is_primary]
        parts = [_table("primary claim", "verdict", main)] if main else []
        parts += [_table("secondary", "", rest)] if rest else []
        return "\n\n".join(parts)


def _table(heading: str, last: str, claims: Sequence[Claim]) -> str:
    lines = [(heading, "paper", "ours", "interval", last)]
    for claim in claims:
        said, result = claim.statement, claim.as_dict()
        text = said.text + (" (ours)" if claim.is_ours else "")
        ours = value_text(claim.ours, claim.spread, said.unit) + never_text(claim.never, claim.seeds)
        interval = interval_text(result["low"], result["high"], claim.than)
        lines.append((text, said.paper, ours, interval, verdict_text(result)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def never_text(never: int | None, seeds: int) -> str:
    """Return how many seeds never reached a target; empty if all did, or if there is no target."""
    return f" ({never} of {seeds} never)" if never else ""


def verdict_text(claim: Mapping[str, Any]) -> str:
    """Return the verdict on a claim with its flag; of an identity, whether it is exact; empty for the others."""
    if claim["kind"] == "identity":
        return "exact" if claim["is_exact"] else "NOT EXACT"
    if claim["verdict"] is None:
        return ""
    return str(claim["verdict"]) + (", smaller than the paper" if claim["is_smaller"] else "")


def reproduce(
    shipped: Shipped, scale: str, out: Path, *, seeds: int | None = None, on_cell: OnCell | None = None
) -> Reproduction:
    """Run what is not in the folder yet, write the reports, and return the verdicts.

    Args:
        shipped: the study.
        scale: "smoke", "small" or "paper".
        out: the output folder, with a folder for each cell.
        seeds: a fixed number of seeds; None takes the study's own, and adds to them until its claims are settled.
        on_cell: called with (cell, study, seeds) before each cell.
    """
    studies = shipped.studies(scale, seeds)
    spent = _read_seconds(out)
    planned = [len(look) for look in max((study.looks for study in studies.values()), key=len)]
    for place, count in enumerate(planned):
        for cell, study in studies.items():
            if on_cell is not None:
                on_cell(cell, study, count)
            _run(study, count, out / cell, spent, out / SECONDS)
        started = time.process_time()
        loaded = {cell: load(out / cell) for cell in studies}
        if max(map(_seeds_in, loaded.values())) > count:  # not settled at this look before
            continue
        found = _judge(shipped, scale, seeds, loaded, spent, planned[: place + 1], planned[-1])
        _write(found, out)  # a study that is stopped at a later look has a result
        if not any(claim.verdict == "not settled" for claim in found.claims):
            break
    for cell in studies:
        write_report([out / cell], out / cell / REPORT)
    spent[WRITING] = time.process_time() - started
    found = replace(found, seconds=spent)
    _write(found, out)
    return found


def _write(found: Reproduction, out: Path) -> None:
    (out / RESULT).write_text(json.dumps(found.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _run(study: Study, seeds: int, folder: Path, spent: dict[str, float], kept: Path) -> None:
    """Run one cell up to a number of seeds, and record its processor time even if it is interrupted."""
    engine = Timed(Vectorised())
    started = time.process_time()
    try:
        result = study.run(folder, engine=engine, progress=False, enough=lambda loaded: _seeds_in(loaded) >= seeds)
    except BaseException:
        if folder.is_dir():
            _record_seconds(spent, engine, time.process_time() - started, kept)
        raise
    if not result.was_finished:
        _record_seconds(spent, engine, time.process_time() - started, kept)
    if result.failures:
        raise UpdateError(failure_text(result.failures, len(result.loaded.runs)))


def _seeds_in(loaded: Loaded) -> int:
    return int(loaded.runs["seed"].nunique())


def _record_seconds(spent: dict[str, float], engine: Timed, seconds: float, kept: Path) -> None:
    for kind, more in (*engine.seconds.items(), (REST, seconds - sum(engine.seconds.values()))):
        spent[kind] = spent.get(kind, 0.0) + more
    kept.write_text(json.dumps(spent), encoding="utf-8")


def _read_seconds(out: Path) -> dict[str, float]:
    kept = out / SECONDS
    return dict(json.loads(kept.read_text(encoding="utf-8"))) if kept.is_file() else {}


def _judge(
    shipped: Shipped,
    scale: str,
    seeds: int | None,
    loaded: Mapping[str, Loaded],
    spent: Mapping[str, float],
    looks: Sequence[int],
    most: int,
) -> Reproduction:
    """Return the results at a look."""
    runs = [each.runs for each in loaded.values()]
    about = shipped.about
    claims = tuple(judged(shipped.claims(loaded), about.primary, looks, most))
    return Reproduction(
        name=shipped.name,
        paper=about.paper,
        what=about.what,
        caveat=about.caveat,
        found=about.found,
        scale=scale,
        seeds=max(map(_seeds_in, loaded.values())),
        looks=tuple(looks),
        most=most,
        runs=sum(map(len, runs)),
        claims=claims,
        command=f"turnout reproduce {shipped.name} --scale {scale}" + (f" --seeds {seeds}" if seeds else ""),
        date=datetime.now(UTC).date().isoformat(),
        version=version("turnout"),
        seconds=spent,
        notes=about.notes,
    )
