"""Write the HTML report of some studies, and their figures and tables as files."""

import os
import stat
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from turnout.analysis.target import Target
from turnout.errors import ConfigError
from turnout.report.contents import contents
from turnout.report.figures import write_figures
from turnout.report.load_studies import gather
from turnout.report.page import chunks, verdict
from turnout.safe_files import written


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The files that were written, and the report's verdict."""

    page: Path
    verdict: str
    figures: tuple[Path, ...] = ()


def write_report(folders: Sequence[Path], out: Path, figures: Path | None = None, target: Target | None = None) -> Path:
    """Write the report of some studies as one HTML file, and return its path.

    Args:
        folders: output folders of `turnout run`, one per study.
        out: the HTML file.
        figures: a folder for figures and tables as files; None writes none.
        target: the value up to which costs are counted; None takes the study's own.
    """
    return write_all(folders, out, figures, target).page


def write_all(folders: Sequence[Path], out: Path, figures: Path | None = None, target: Target | None = None) -> Written:
    """Write a report as `write_report` does, and return all files that were written."""
    if not folders:
        raise ConfigError("A report needs at least one folder that turnout run wrote; got none. Name one.")
    report = contents(gather([Path(folder) for folder in folders], target))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _opened(out) as file:
            file.writelines(part.encode() for part in chunks(report))
        figure_files = () if figures is None else tuple(write_figures(report, figures))
    except OSError as error:
        raise ConfigError(
            f"The report cannot be written: {error}. Choose another file with -o, or another folder with --figures."
        ) from error
    return Written(page=out, verdict=verdict(report), figures=figure_files)


def _opened(out: Path) -> AbstractContextManager[BinaryIO]:
    """Open the file for writing; a plain file is replaced, not overwritten, because it may have a hard link."""
    is_plain = not os.path.lexists(out) or stat.S_ISREG(out.lstat().st_mode)
    return written(out) if is_plain else out.open("wb")
