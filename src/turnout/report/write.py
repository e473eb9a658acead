"""Writes a report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turnout.errors import ConfigError
from turnout.report.contents import contents
from turnout.report.figures import write_figures
from turnout.report.gather import gather
from turnout.report.page import chunks, verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written, and what it says."""

    page: Path
    verdict: str
    figures: tuple[Path, ...] = ()


def write_report(folders: Sequence[Path], out: Path, figures: Path | None = None) -> Path:
    """Write the report of some studies as one HTML file, and return where it is.

    Args:
        folders: what `turnout run` wrote, one folder a study.
        out: the file.
        figures: a folder for the figures and the tables as files of their own; None writes none.
    """
    return write_all(folders, out, figures).page


def write_all(folders: Sequence[Path], out: Path, figures: Path | None = None) -> Written:
    """Write a report as `write_report` does, and return everything that was written."""
    if not folders:
        raise ConfigError("A report needs at least one folder that turnout run wrote; got none. Name one.")
    found = contents(gather([Path(folder) for folder in folders]))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8") as file:
            file.writelines(chunks(found))
        drawn = () if figures is None else tuple(write_figures(found, figures))
    except OSError as error:
        raise ConfigError(
            f"The report cannot be written: {error}. Name a file that can be, with -o, and a folder with --figures."
        ) from error
    return Written(page=out, verdict=verdict(found), figures=drawn)
