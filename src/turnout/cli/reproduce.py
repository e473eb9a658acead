"""`turnout reproduce`."""

import shutil
import time
from pathlib import Path
from textwrap import fill
from typing import Any

import typer

from turnout.cli.error_messages import STOPPED
from turnout.cli.json_output import json_text
from turnout.reproduce import Shipped, Verdict, reproduce, shipped, shipped_named
from turnout.reproduce.claims import count_text
from turnout.study import Study
from turnout.study.interruption import Stopped
from turnout.study.progress import duration

NOT_REPRODUCED = 3
WIDEST = 120  # columns of a line of text
PLACE = Path("runs", "reproduce")


def list_studies(*, as_json: bool) -> None:
    """Print the studies that can be reproduced."""
    rows = [_row(study) for study in shipped().values()]
    if as_json:
        typer.echo(json_text(rows))
        return
    width = max(len(row["name"]) for row in rows)
    columns = min(max(shutil.get_terminal_size().columns, 2 * width), WIDEST)
    for row in rows:
        start = f"{row['name']:{width}}  {row['small']:>6}  "
        needs = f" Needs {', '.join(row['needs'])}." if row["needs"] else ""
        text = f"{row['what']} {row['paper']}.{needs}"
        typer.echo(fill(text, columns, initial_indent=start, subsequent_indent=" " * len(start)))
    typer.echo("\nTimes are for --scale small on two cores. Next: turnout reproduce NAME")


def _row(study: Shipped) -> dict[str, Any]:
    about = study.about
    return {
        "name": study.name,
        "paper": about.paper,
        "what": about.what,
        "needs": list(about.needs),
        "small": about.small,
    }


def run_one(name: str, scale: str, seeds: int | None, out: Path | None, *, as_json: bool) -> None:
    """Run one study and print which claims hold; exit with 3 if a tested claim does not."""
    study = shipped_named(name)
    folder = out or PLACE / f"{name}-{scale}{'' if seeds is None else f'-{seeds}'}"
    started = time.monotonic()
    cells = len(study.about.cells)

    def on_cell(cell: str, part: Study) -> None:
        if not as_json:
            runs = len(part.versions()) * len(part.all_seeds)
            which = f" {cell}" if cells > 1 else ""
            typer.echo(f"{duration(time.monotonic() - started):>7}  {name}{which}: {runs} runs of {part.rounds} rounds")

    try:
        verdict = reproduce(study, scale, folder, seeds=seeds, on_cell=on_cell)
    except KeyboardInterrupt as error:
        typer.echo(f"stopped: finished runs are kept in {folder}. Run the same command again to do the rest.", err=True)
        raise typer.Exit(error.exit_code if isinstance(error, Stopped) else STOPPED) from error
    if as_json:
        typer.echo(json_text(verdict.as_dict()))
    else:
        _print(verdict, folder)
    if not verdict.all_hold:
        raise typer.Exit(NOT_REPRODUCED)


def _print(verdict: Verdict, folder: Path) -> None:
    typer.echo(f"\n{verdict.paper}: {verdict.what}\n\n{verdict.text()}\n")
    for note in [*(claim.statement.note for claim in verdict.claims), *verdict.notes]:
        if note:
            typer.echo(f"note: {note}")
    held = count_text([claim.outcome for claim in verdict.claims])
    run = f"{verdict.seeds} seeds, scale {verdict.scale}"
    typer.echo(f"claims that held: {held}; {run}; results are in {folder}")
