"""What rules remember of each client: a table with one row per client, in RAM while it fits, else in a file.

Rows start as zeros and cost nothing until they are written. Beyond the budget the table lives in a sparse temporary
file that is mapped only while rows are read or written, so resident memory stays at the rows in hand.
"""

import os
import tempfile
import weakref

import numpy as np
import torch
from torch import Tensor

from turnout.streams import Ids

DEFAULT_BUDGET = 1 << 30  # bytes of RAM one table may take


class RowTable:
    """One row per client. `put` changes it in place: a table of gigabytes is not copied each round."""

    def __init__(self, num_rows: int, like: Tensor, budget: int = DEFAULT_BUDGET) -> None:
        self.num_rows, self.size, self.budget = num_rows, like.numel(), budget
        self.dtype, self.device = like.dtype, like.device
        self.seen = np.zeros(num_rows, dtype=bool)
        self.changed = np.zeros(num_rows, dtype=bool)  # since this was last cleared, for saving in small pieces
        self.bytes = num_rows * self.size * like.element_size()
        self.path: str | None = None
        self.rows: Tensor | None = None
        if self.bytes <= budget:
            self.rows = torch.zeros(num_rows, self.size, dtype=self.dtype, device=self.device)
        else:
            handle, self.path = tempfile.mkstemp(prefix="turnout-", suffix=".rows")
            os.ftruncate(handle, self.bytes)  # sparse: holes read as zeros
            os.close(handle)
            weakref.finalize(self, _remove, self.path)

    @property
    def in_file(self) -> bool:
        """Whether the table lies in a file."""
        return self.path is not None

    def take(self, rows: Ids) -> Tensor:
        """Return a copy of these rows."""
        if self.rows is not None:
            return self.rows[torch.from_numpy(rows)]
        mapped = self._map("r")
        return torch.from_numpy(np.ascontiguousarray(mapped[rows])).to(self.device)

    def put(self, rows: Ids, values: Tensor) -> None:
        """Write these rows."""
        self.seen[rows] = True
        self.changed[rows] = True
        if self.rows is not None:
            self.rows[torch.from_numpy(rows)] = values
            return
        mapped = self._map("r+")
        mapped[rows] = values.detach().cpu().numpy()

    def _map(self, mode: str) -> np.ndarray:
        assert self.path is not None
        kind = torch.zeros(0, dtype=self.dtype).numpy().dtype
        return np.memmap(self.path, dtype=kind, mode=mode, shape=(self.num_rows, self.size))  # type: ignore[call-overload,no-any-return]


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
