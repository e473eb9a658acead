"""A study's rounds, told to its trackers as well as to whoever watches."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError
from turnout.requests import Record
from turnout.study.study import OnProgress, Study
from turnout.track import Tracked, Trackers, check_folder, check_installed


def check_tracking(study: Study, folder: Path | None) -> None:
    """Raise if the study cannot be tracked: nothing has been written yet."""
    check_installed(study.track)
    if study.track and folder is None:
        raise ConfigError(
            f"track ({', '.join(study.track)}) needs a folder beside which to write; this study is kept in memory. "
            "Give run a folder, out, or take track out."
        )
    if folder is not None:
        check_folder(study.track, folder)


@contextmanager
def with_trackers(
    study: Study, folder: Path | None, configs: Mapping[str, Mapping[str, Any]], on_progress: OnProgress | None
) -> Iterator[OnProgress | None]:
    """Yield what to call after each round."""
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
