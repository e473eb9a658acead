"""Weights & Biases: one project per study, one run per arm and seed, grouped by arm.

wandb's own settings decide whether anything leaves the machine: with WANDB_MODE=offline it writes below the
study's folder only, and `wandb sync` sends it later.
"""

import os
from pathlib import Path
from typing import Any

from turnout.requests import Record
from turnout.safe_files import is_own_folder
from turnout.track.tracker import Place, Tracked, numbers

FOLDER = "wandb"


class Wandb:
    """Sends to Weights & Biases."""

    package = "wandb"

    @staticmethod
    def is_local() -> bool:
        """Return whether WANDB_MODE stops it from sending anything."""
        return os.environ.get("WANDB_MODE", "") in ("offline", "disabled")

    @staticmethod
    def check(folder: Path) -> None:
        """Raise if a link in the study's folder would make it write elsewhere."""
        is_own_folder(folder / FOLDER)

    def __init__(self, tracked: Tracked) -> None:
        import wandb

        self._wandb: Any = wandb
        self._tracked = tracked
        self._runs: dict[Place, Any] = {}

    def record(self, place: Place, record: Record) -> None:
        """Send one round."""
        if place not in self._runs:
            self._runs[place] = self._begin(place, record.round)
        self._runs[place].log(numbers(record), step=record.round)
        if record.finished:
            self._runs.pop(place).finish()

    def close(self) -> None:
        """End the runs that have not ended, as failed."""
        for run in self._runs.values():
            run.finish(exit_code=1)
        self._runs.clear()

    def _begin(self, place: Place, round: int) -> Any:
        arm, seed = place
        return self._wandb.init(
            project=self._tracked.study,
            group=arm,
            name=f"{arm}, seed {seed}",
            id=self._tracked.key(place),
            config={**self._tracked.configs[arm], "arm": arm, "seed": seed},
            dir=str(self._tracked.folder),
            resume="allow" if round > 0 else None,  # a run from the start takes the place of an earlier one
            reinit="create_new",  # several runs advance together
            settings=self._wandb.Settings(silent=True, console="off"),
        )
