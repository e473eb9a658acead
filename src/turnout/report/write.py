"""Writes a report."""

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
    """What was written, and what it says."""

    page: Path
    verdict: str
    figures: tuple[Path, ...] = ()


def write_report(folders: Sequence[Path], out: Path, figures: Path | None = None, target: Target | None = None) -> Path:
    """Write the report of some studies as one HTML file, and return where it is.

    Args:
        folders: what `turnout run` wrote, one folder a study.
        out: the file.
        figures: a folder for the figures and the tables as files of their own; None writes none.
        target: what costs are measured to; None is what the study says.
    """
    return write_all(folders, out, figures, target).page


def write_all(folders: Sequence[Path], out: Path, figures: Path | None = None, target: Target | None = None) -> Written:
    """Write a report as `write_report` does, and return everything that was written."""
    if not folders:
        raise ConfigError("A report needs at least one folder that turnout run wrote; got none. Name one.")
    found = contents(gather([Path(folder) for folder in folders], target))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _opened(out) as file:
            file.writelines(part.encode() for part in chunks(found))
        drawn = () if figures is None else tuple(write_figures(found, figures))
    except OSError as error:
        raise ConfigError(
            f"The report cannot be written: {error}. Name a file that can be, with -o, and a folder with --figures."
        ) from error
    return Written(page=out, verdict=verdict(found), figures=drawn)


def _opened(out: Path) -> AbstractContextManager[BinaryIO]:
    """Return a file to write; a plain file is replaced, and not written over: it may have a second name elsewhere."""
    is_plain = not os.path.lexists(out) or stat.S_ISREG(out.lstat().st_mode)
    return written(out) if is_plain else out.open("wb")
