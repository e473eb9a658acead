"""Open trackers by name, and keep a run going if one of them fails: the journal has all numbers."""

import warnings
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from turnout.errors import ConfigError
from turnout.requests import Record
from turnout.track.mlflow import Mlflow
from turnout.track.tensorboard import TensorBoard
from turnout.track.tracker import Place, Tracked, Tracker
from turnout.track.wandb import Wandb

TRACKERS: dict[str, type[TensorBoard] | type[Mlflow] | type[Wandb]] = {
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
    "wandb": Wandb,
}


def problems(names: Any) -> Iterator[str]:
    """Yield the problems of a study's `track` setting."""
    known = ", ".join(TRACKERS)
    for name in names:
        if name not in TRACKERS:
            yield f"There is no tracker {name!r}. Set track to a list of {known}; [] tracks nothing."
        elif list(names).count(name) > 1:
            yield f"Each tracker is named once; {name!r} is named {list(names).count(name)} times. Change track."


def check_installed(names: Sequence[str]) -> None:
    """Raise if a tracker's package is not installed."""
    absent = [name for name in names if find_spec(TRACKERS[name].package) is None]
    if absent:
        what = " and ".join(absent)
        raise ConfigError(
            f"track asks for {what}, which {'is' if len(absent) == 1 else 'are'} not installed; nothing was run. "
            f"Install with: pip install {' '.join(TRACKERS[name].package for name in absent)} "
            f"(or all trackers: pip install 'turnout[track]'), or take {what} out of track."
        )


def check_local(names: Sequence[str], where: str) -> None:
    """Raise if a study file names a tracker that would send numbers over the network."""
    remote = [name for name in names if not TRACKERS[name].is_local()]
    if remote:
        what = " and ".join(remote)
        raise ConfigError(
            f"{where} asks to track with {what}, which sends numbers over the network. Allow it with --allow-network, "
            "or in Python with allow_network=True; or keep it on this machine: WANDB_MODE=offline for wandb, no "
            f"MLFLOW_TRACKING_URI for mlflow. Or take {what} out of track."
        )


def check_folder(names: Sequence[str], folder: Path) -> None:
    """Raise if a link in the study's folder, which is untrusted, would make a tracker write elsewhere."""
    for name in names:
        TRACKERS[name].check(folder)


class Trackers:
    """Several trackers as one. A tracker that fails is reported once and then left out."""

    def __init__(self, names: Sequence[str], tracked: Tracked) -> None:
        self._open: dict[str, Tracker] = {}
        for name in names:
            try:
                self._open[name] = TRACKERS[name](tracked)
            except Exception as error:  # whatever the other tool raises
                self.close()
                raise ConfigError(
                    f"{name} cannot be opened: {_first_line(error)}. Check its settings, or take it out of track."
                ) from error

    def record(self, place: Place, record: Record) -> None:
        """Send one round to every tracker."""
        for name, tracker in list(self._open.items()):
            try:
                tracker.record(place, record)
            except Exception as error:  # whatever the other tool raises
                del self._open[name]
                self._warn(name, error)

    def close(self) -> None:
        """Close every tracker."""
        for name, tracker in self._open.items():
            try:
                tracker.close()
            except Exception as error:  # whatever the other tool raises
                self._warn(name, error)
        self._open.clear()

    def _warn(self, name: str, error: Exception) -> None:
        warnings.warn(
            f"{name} failed and gets no more numbers ({_first_line(error)}). The run continues; the journal has all.",
            stacklevel=3,
        )


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
