"""Sends the rounds of a study to its trackers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError
from turnout.requests import Record
from turnout.study.study import OnProgress, Study
from turnout.track import Tracked, Trackers, check_folder, check_installed


def check_tracking(study: Study, folder: Path | None) -> None:
    """Raise ConfigError if the study cannot be tracked; called before anything is written."""
    check_installed(study.track)
    if study.track and folder is None:
        raise ConfigError(
            f"track ({', '.join(study.track)}) needs an output folder; this study is kept in memory. "
            "Pass a folder to run as out, or leave track out."
        )
    if folder is not None:
        check_folder(study.track, folder)


@contextmanager
def with_trackers(
    study: Study, folder: Path | None, configs: Mapping[str, Mapping[str, Any]], on_progress: OnProgress | None
) -> Iterator[OnProgress | None]:
    """Yield the function to call after each round; None if there is none."""
    if not study.track or folder is None:
        yield on_progress
        return
    trackers = Trackers(study.track, Tracked(study=study.name, folder=folder, configs=configs))

    def tell(arm: str, seed: int, record: Record) -> None:
        trackers.record((arm, seed), record)
        if on_progress is not None:
            on_progress(arm, seed, record)

    try:
        yield tell
    finally:
        trackers.close()
