"""What rules remember of each client: a table with one row per client, in RAM while it fits, else in a file.

Rows start as zeros and cost nothing until they are written. Beyond the budget the table lives in a sparse temporary
file that is mapped only while rows are read or written, so resident memory stays at the rows in hand.
"""

import os
import tempfile
import weakref
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from turnout.streams import Ids

DEFAULT_BUDGET = 1 << 30  # bytes of RAM one table may take
LINE = 64  # bytes of memory that are read or written as one


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
        self.waiting: Tensor | None = None
        if self.bytes <= budget:
            self.rows = new_rows(num_rows, self.size, self.dtype, self.device, torch.zeros)
        else:
            handle, self.path = tempfile.mkstemp(prefix="turnout-", suffix=".rows")
            os.ftruncate(handle, self.bytes)  # sparse: holes read as zeros
            os.close(handle)
            weakref.finalize(self, _remove, self.path)

    @property
    def in_file(self) -> bool:
        """Whether the table lies in a file."""
        return self.path is not None

    def spare(self, count: int) -> Tensor:
        """Return memory for so many rows on their way into the table: the same each time, as fresh memory is slow."""
        if self.waiting is None or len(self.waiting) < count:
            self.waiting = new_rows(count, self.size, self.dtype, self.device)
        return self.waiting if len(self.waiting) == count else self.waiting[:count]

    def run_of(self, rows: Ids) -> Tensor | None:
        """Return a view of these rows, where they lie in RAM one after another; None where they do not."""
        run = consecutive(rows)
        return None if self.rows is None or run is None else self.rows[run]

    def take(self, rows: Ids) -> Tensor:
        """Return a copy of these rows."""
        if self.rows is not None:
            if (view := self.run_of(rows)) is not None:
                return view.clone()
            return self.rows.index_select(0, torch.from_numpy(rows).to(self.device))
        mapped = self._map("r")
        return torch.from_numpy(np.ascontiguousarray(mapped[rows])).to(self.device)

    def columns(self, rows: Ids, start: int, out: Tensor) -> Tensor:
        """Copy a part of these rows, from this column on, to `out`, and return it."""
        if self.rows is None:
            return out.copy_(torch.from_numpy(self._map("r")[rows, start : start + out.shape[1]]))
        part = self.rows[:, start : start + out.shape[1]]
        return torch.index_select(part, 0, torch.from_numpy(rows).to(self.device), out=out)

    def put(self, rows: Ids, values: Tensor) -> None:
        """Write these rows; values in the table's spare memory are taken as they are where they are all its rows."""
        self.seen[rows] = True
        self.changed[rows] = True
        if self.rows is not None and self._are_all(rows, values):
            self.rows, self.waiting = self.waiting, self.rows
        elif self.rows is not None and (view := self.run_of(rows)) is not None:
            view.copy_(values)
        elif self.rows is not None:
            self.rows.index_copy_(0, torch.from_numpy(rows).to(self.device), values)
        else:
            self._map("r+")[rows] = values.detach().cpu().numpy()

    def is_spare(self, values: Tensor) -> bool:
        """Whether these values lie in the spare memory, where only what runs beside the table can put them."""
        return self.waiting is not None and self.waiting.data_ptr() == values.data_ptr()

    def _are_all(self, rows: Ids, values: Tensor) -> bool:
        """Whether the values are the spare memory, with a row for everyone in order."""
        if self.waiting is None or len(rows) != self.num_rows or self.waiting.shape != values.shape:
            return False
        return self.is_spare(values) and bool((rows == np.arange(self.num_rows)).all())

    def _map(self, mode: str) -> np.ndarray:
        assert self.path is not None
        kind = torch.zeros(0, dtype=self.dtype).numpy().dtype
        return np.memmap(self.path, dtype=kind, mode=mode, shape=(self.num_rows, self.size))  # type: ignore[call-overload,no-any-return]


def new_rows(
    count: int, size: int, dtype: torch.dtype, device: torch.device, make: Callable[..., Tensor] = torch.empty
) -> Tensor:
    """Return memory for so many rows. Each begins at a line of memory, unless it is so short that this would waste it.

    A stack of rows that begin anywhere takes a few parts in a hundred longer to read and write.
    """
    per_line = LINE // dtype.itemsize
    room = size if size < LINE * per_line else -(-size // per_line) * per_line
    return make(count, room, dtype=dtype, device=device)[:, :size]


def consecutive(places: Ids) -> slice | None:
    """Return these places as a slice, where each is one more than the last; None where they are not."""
    if not len(places) or places[-1] - places[0] + 1 != len(places) or (np.diff(places) != 1).any():
        return None
    return slice(int(places[0]), int(places[-1]) + 1)


def _remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)
