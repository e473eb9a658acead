"""What `turnout report` does."""

from collections.abc import Sequence
from pathlib import Path

import typer

from turnout.analysis.target import Target
from turnout.cli.json_output import json_text
from turnout.errors import ConfigError
from turnout.report import write_all

NAME = "report.html"


def report(
    folders: Sequence[Path],
    out: Path | None,
    figures: Path | None,
    target: Target | None = None,
    *,
    as_json: bool = False,
) -> None:
    """Write the report of some studies and say where it is and what it says.

    Args:
        folders: what `turnout run` wrote.
        out: the file; None is report.html, in the study's folder if there is one study, else here.
        figures: where figures and tables go as files of their own; None writes none.
        target: what costs are measured to; None is what the study says.
        as_json: print JSON.
    """
    page = out or (folders[0] / NAME if len(folders) == 1 else Path(NAME))
    if out is None and page.is_symlink():  # a stranger's folder must not choose what is overwritten
        raise ConfigError(f"{page} is a link to somewhere else; nothing was written. Name a file with -o.")
    written = write_all(folders, page, figures, target)
    if as_json:
        drawn = [str(file) for file in written.figures]
        typer.echo(json_text({"report": str(written.page), "verdict": written.verdict, "figures": drawn}))
        return
    typer.echo(written.verdict)
    if figures is not None:
        typer.echo(f"{len(written.figures)} figures and tables are in {figures}")
    typer.echo(f"open {written.page}")
