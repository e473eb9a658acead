"""What a device remembers from round to round, in a file that survives its restart.

A row that a round made is pending until the server says that the round was kept: with each order it names the last
round whose row counts. The row that counted before stays until then, so that either can be the next.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from turnout.errors import DataError
from turnout.safe_files import written


class DeviceState:
    """One row of the model's shape per name of client state, for one run."""

    def __init__(self, folder: Path, run: str) -> None:
        if not run.isalnum() or len(run) > 64:
            raise DataError(f"A run's name must be letters and digits, at most 64; got {run[:80]!r}.")
        self.folder, self.run = folder, run

    def row(self, name: str, kept_round: int, like: Tensor) -> Tensor:
        """Return the row that counts: of this round, or zeros for round 0."""
        if kept_round == 0:
            return torch.zeros_like(like)
        found = self._read(name).get(kept_round)
        if found is None or found.shape != like.shape or found.dtype != like.dtype:
            raise DataError(
                f"This device needs the client state {name!r} of round {kept_round}, and {self._file(name)} does not "
                "have it. Bring the file back, or start a new run."
            )
        return found

    def put(self, name: str, round: int, row: Tensor, kept_round: int, kept: Tensor) -> None:
        """Write the row that a round made, beside the one that counts."""
        rows = {str(kept_round): kept} if kept_round else {}
        self.folder.mkdir(parents=True, exist_ok=True)
        with written(self._file(name)) as file:
            file.write(save({**rows, str(round): row.contiguous()}))

    def _file(self, name: str) -> Path:
        return self.folder / f"{self.run}-{name}.safetensors"

    def _read(self, name: str) -> dict[int, Tensor]:
        path = self._file(name)
        if not path.is_file():
            return {}
        try:
            with safe_open(str(path), framework="pt") as file:
                return {int(key): file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, ValueError) as error:
            raise DataError(f"{path} is damaged ({error}). Bring back a good copy, or start a new run.") from error
