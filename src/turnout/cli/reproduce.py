"""`turnout reproduce`."""

import shutil
import time
from pathlib import Path
from textwrap import fill
from typing import Any

import typer

from turnout.cli.error_messages import STOPPED
from turnout.cli.json_output import json_text
from turnout.reproduce import Reproduction, Shipped, reproduce, shipped, shipped_named
from turnout.reproduce.claims import counts, counts_text
from turnout.reproduce.page import outlook_text
from turnout.study import Study
from turnout.study.interruption import Stopped
from turnout.study.progress import duration

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
    """Run one study and print the verdicts; exit with 3 if a claim is contradicted, with 4 if one is not settled."""
    study = shipped_named(name)
    folder = out or PLACE / f"{name}-{scale}{'' if seeds is None else f'-{seeds}'}"
    started = time.monotonic()
    cells = len(study.about.cells)

    def on_cell(cell: str, part: Study, seeds: int) -> None:
        if not as_json:
            runs = len(part.versions()) * seeds
            which = f" {cell}" if cells > 1 else ""
            typer.echo(f"{duration(time.monotonic() - started):>7}  {name}{which}: {runs} runs of {part.rounds} rounds")

    try:
        result = reproduce(study, scale, folder, seeds=seeds, on_cell=on_cell)
    except KeyboardInterrupt as error:
        typer.echo(f"stopped: finished runs are kept in {folder}. Run the same command again to do the rest.", err=True)
        raise typer.Exit(error.exit_code if isinstance(error, Stopped) else STOPPED) from error
    if as_json:
        typer.echo(json_text(result.as_dict()))
    else:
        _print(result, folder)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _print(result: Reproduction, folder: Path) -> None:
    opening = f"\n{result.paper}: {result.what}" + (f"\n{result.caveat}" if result.caveat else "")
    typer.echo(f"{opening}\n\n{result.text()}\n")
    for claim in result.claims:
        if claim.verdict == "not settled":
            typer.echo(f"not settled: {claim.statement.text}: {outlook_text(claim.as_dict())}")
    for note in [*(claim.statement.note for claim in result.claims), *result.notes]:
        if note:
            typer.echo(f"note: {note}")
    found = counts_text({str(verdict): count for verdict, count in counts(result.claims).items()})
    more = f" of at most {result.most}" if result.most > result.seeds else ""
    run = f"{result.seeds}{more} seeds, scale {result.scale}"
    typer.echo(f"primary claims: {found}; {run}; results are in {folder}")
