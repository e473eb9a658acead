"""`turnout report`."""

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
    """Write the report of some studies, and print its verdict and its path.

    Args:
        folders: output folders of `turnout run`.
        out: the file; None is report.html, in the study's folder if there is one study, else in this folder.
        figures: a folder for figures and tables as files; None writes none.
        target: the value up to which costs are counted; None takes the study's own.
        as_json: print JSON.
    """
    page = out or (folders[0] / NAME if len(folders) == 1 else Path(NAME))
    if out is None and page.is_symlink():  # an untrusted folder must not choose which file is overwritten
        raise ConfigError(f"{page} is a link to another place; nothing was written. Choose a file with -o.")
    written = write_all(folders, page, figures, target)
    if as_json:
        figure_files = [str(file) for file in written.figures]
        typer.echo(json_text({"report": str(written.page), "verdict": written.verdict, "figures": figure_files}))
        return
    typer.echo(written.verdict)
    if figures is not None:
        typer.echo(f"wrote {len(written.figures)} figures and tables to {figures}")
    typer.echo(f"open {written.page}")
