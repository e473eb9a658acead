"""What rules remember of each client: a table with one row per client, in RAM while it fits, else in a file.

Rows start as zeros and cost nothing until they are written. Beyond the budget the table lies in a temporary file, so
resident memory stays at the rows in hand.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.row_file import RowFile

DEFAULT_BUDGET = 1 << 30  # bytes of RAM one table may take
LINE = 64  # bytes of memory that are read or written as one

BLOCK_BYTES = 64 << 20  # rows of a table are summed in blocks of so many bytes


class RowTable:
    """One row per client. `put` changes it in place: a table of gigabytes is not copied each round."""

    def __init__(self, num_rows: int, like: Tensor, budget: int = DEFAULT_BUDGET) -> None:
        self.num_rows, self.size, self.budget = num_rows, like.numel(), budget
        self.dtype, self.device = like.dtype, like.device
        self.seen = np.zeros(num_rows, dtype=bool)
        self.changed = np.zeros(num_rows, dtype=bool)  # since this was last cleared, for saving in small pieces
        self.bytes = num_rows * self.size * like.element_size()
        self.file: RowFile | None = None
        self.rows: Tensor | None = None
        self.waiting: Tensor | None = None
        self._staged: list[tuple[Ids, Tensor]] | None = None  # writes that are held back; None: none are
        self._replaced: list[tuple[Ids, Tensor]] = []  # what held-back writes replaced that had to be made early
        self._marks = (self.seen, self.changed)  # as they were when writes began to be held back
        if self.bytes <= budget:
            self.rows = new_rows(num_rows, self.size, self.dtype, self.device, torch.zeros)
        else:
            self.file = RowFile(num_rows, self.size, self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as the rows that were ever written."""
        ids = np.flatnonzero(self.seen)
        return _table_of, (self.num_rows, self.budget, ids, self.take(ids))

    @property
    def in_file(self) -> bool:
        """Whether the table lies in a file."""
        return self.file is not None

    def spare(self, count: int) -> Tensor:
        """Return memory for so many rows on their way into the table: the same each time, as fresh memory is slow."""
        if self.waiting is None or len(self.waiting) < count:
            self.waiting = new_rows(count, self.size, self.dtype, self.device)
        return self.waiting if len(self.waiting) == count else self.waiting[:count]

    def stage(self) -> None:
        """Hold writes back from here on, until `commit` or `undo`."""
        self._staged, self._replaced, self._marks = [], [], (self.seen.copy(), self.changed.copy())

    @property
    def is_staged(self) -> bool:
        """Whether writes are held back."""
        return self._staged is not None

    def written(self) -> list[Tensor]:
        """Return the rows of held-back writes; all rows ever written where writes are not held back.

        Rows in the spare memory are left out: they were checked when they came.
        """
        if self._staged is None:
            return [self.take(np.flatnonzero(self.seen))]
        fresh = [values for _, values in self._staged if not self.is_spare(values)]
        return fresh + [self._read(rows) for rows, _ in self._replaced]

    def commit(self) -> None:
        """Make the writes that were held back."""
        staged, self._staged, self._replaced = self._staged or [], None, []
        for rows, values in staged:
            self._write(rows, values)

    def undo(self) -> None:
        """Drop the writes that were held back."""
        for rows, values in reversed(self._replaced):
            self._write(rows, values)
        self._staged, self._replaced = None, []
        self.seen, self.changed = self._marks

    def _catch_up(self) -> None:
        """Make held-back writes before a read, with a copy of what they replace."""
        while self._staged:
            rows, values = self._staged.pop(0)
            self._replaced.append((rows, self._read(rows)))
            self._write(rows, values)

    def run_of(self, rows: Ids) -> Tensor | None:
        """Return a view of these rows, where they lie in RAM one after another; None where they do not."""
        self._catch_up()
        return self._run_of(rows)

    def _run_of(self, rows: Ids) -> Tensor | None:
        run = consecutive(rows)
        return None if self.rows is None or run is None else self.rows[run]

    def take(self, rows: Ids) -> Tensor:
        """Return a copy of these rows."""
        self._catch_up()
        return self._read(rows)

    def _read(self, rows: Ids) -> Tensor:
        if self.rows is not None:
            if (view := self._run_of(rows)) is not None:
                return view.clone()
            return self.rows.index_select(0, torch.from_numpy(rows).to(self.device))
        assert self.file is not None
        return self.file.read(rows, 0, self.size).to(self.device)

    def columns(self, rows: Ids, start: int, out: Tensor) -> Tensor:
        """Copy a part of these rows, from this column on, to `out`, and return it."""
        self._catch_up()
        if self.rows is None:
            assert self.file is not None
            return out.copy_(self.file.read(rows, start, out.shape[1]))
        part = self.rows[:, start : start + out.shape[1]]
        return torch.index_select(part, 0, torch.from_numpy(rows).to(self.device), out=out)

    def put(self, rows: Ids, values: Tensor) -> None:
        """Write these rows; values in the table's spare memory are taken as they are where they are all its rows."""
        self.seen[rows] = True
        self.changed[rows] = True
        if self._staged is None:
            self._write(rows, values)
        else:
            self._staged.append((rows, values))

    def _write(self, rows: Ids, values: Tensor) -> None:
        if self.rows is not None and self._are_all(rows, values):
            self.rows, self.waiting = self.waiting, self.rows
        elif self.rows is not None and (view := self._run_of(rows)) is not None:
            view.copy_(values)
        elif self.rows is not None:
            self.rows.index_copy_(0, torch.from_numpy(rows).to(self.device), values)
        else:
            assert self.file is not None
            self.file.write(rows, values)

    def is_spare(self, values: Tensor) -> bool:
        """Whether these values lie in the spare memory, where only what runs beside the table can put them."""
        return self.waiting is not None and self.waiting.data_ptr() == values.data_ptr()

    def _are_all(self, rows: Ids, values: Tensor) -> bool:
        """Whether the values are the spare memory, with a row for everyone in order."""
        if self.waiting is None or len(rows) != self.num_rows or self.waiting.shape != values.shape:
            return False
        return self.is_spare(values) and bool((rows == np.arange(self.num_rows)).all())


def _table_of(num_rows: int, budget: int, ids: Ids, rows: Tensor) -> RowTable:
    """Return a table with these rows; the others are zero."""
    table = RowTable(num_rows, rows.new_zeros(rows.shape[1]), budget)
    table.put(ids, rows)
    table.changed[:] = False
    return table


def weighted_sum(table: RowTable, weights: Floats) -> Tensor:
    """Return Σ_j w_j y_j over the rows ever written, block by block."""
    total = torch.zeros(table.size, dtype=torch.float64, device=table.device)
    counted = np.flatnonzero(table.seen & (weights != 0))
    block = max(1, BLOCK_BYTES * table.num_rows // max(table.bytes, 1))
    for begin in range(0, len(counted), block):
        ids = counted[begin : begin + block]
        rows = table.take(ids)
        total += torch.as_tensor(weights[ids], dtype=rows.dtype, device=rows.device) @ rows
    return total


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
