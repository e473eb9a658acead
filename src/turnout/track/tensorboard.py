"""TensorBoard: event files below the study's folder, one folder per arm and seed.

Show them with `tensorboard --logdir FOLDER/tensorboard`.
"""

from pathlib import Path
from typing import Any

from turnout.requests import Record
from turnout.safe_files import is_own_folder
from turnout.track.tracker import Place, Tracked, numbers

FOLDER = "tensorboard"


class TensorBoard:
    """Writes event files."""

    package = "tensorboard"

    @staticmethod
    def is_local() -> bool:
        """Files never leave the machine."""
        return True

    @staticmethod
    def check(folder: Path) -> None:
        """Raise if a link in the study's folder would make it write elsewhere."""
        if is_own_folder(folder / FOLDER):
            for link in filter(Path.is_symlink, (folder / FOLDER).rglob("*")):
                is_own_folder(link)

    def __init__(self, tracked: Tracked) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer, self._tracked = SummaryWriter, tracked
        self._open: dict[Place, Any] = {}

    def record(self, place: Place, record: Record) -> None:
        """Write one round."""
        if place not in self._open:
            folder: Path = self._tracked.folder / FOLDER / self._tracked.file_name(place)
            # events from this round on, of a run that was stopped, are discarded
            self._open[place] = self._writer(str(folder), purge_step=record.round)
        for name, value in numbers(record).items():
            self._open[place].add_scalar(name, value, record.round)
        if record.finished:
            self._open.pop(place).close()

    def close(self) -> None:
        """Flush and close all event files."""
        for writer in self._open.values():
            writer.close()
        self._open.clear()
