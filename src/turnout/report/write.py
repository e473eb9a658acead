"""Writes a report."""

from collections.abc import Sequence
from pathlib import Path

from turnout.errors import ConfigError
from turnout.report.contents import contents
from turnout.report.figures import write_figures
from turnout.report.gather import gather
from turnout.report.page import chunks


def write_report(folders: Sequence[Path], out: Path, figures: Path | None = None) -> Path:
    """Write the report of some runs as one HTML file, and return where it is.

    Args:
        folders: what `turnout run` wrote, one folder a study.
        out: the file.
        figures: a folder for the figures and the tables as files of their own; None writes none.
    """
    if not folders:
        raise ConfigError("A report needs at least one folder that turnout run wrote; got none. Name one.")
    found = contents(gather(folders))
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("w", encoding="utf-8") as file:
        file.writelines(chunks(found))
    if figures is not None:
        write_figures(found, figures)
    return out
