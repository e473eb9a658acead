"""A table with one row per client, such as FedVARP's updates: in memory up to a budget, else in a file.

Rows are zero, or a given first row, until they are written, and unwritten rows take no memory. Above the budget the
table is in a temporary file, so that memory holds only the rows in use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.row_file import RowFile

DEFAULT_BUDGET = 1 << 30  # largest size in bytes of a table in memory
LINE = 64  # bytes of a cache line

BLOCK_BYTES = 64 << 20  # bytes of a block of rows in weighted_sum


class RowSource(Protocol):
    """Rows by client id."""

    def take(self, rows: Ids) -> Tensor:
        """Return a copy of these clients' rows."""
        ...

    def read(self, rows: Ids) -> Tensor:
        """Return these clients' rows, which nobody may write to: they may be the table's own memory."""
        ...

    def parts(self, rows: Ids, columns: Sequence[slice]) -> list[Tensor]:
        """Return runs of columns of these clients' rows, which nobody may write to; one row where all have the same."""
        ...


class RowTable:
    """One row per client. `put` writes in place, since a table may have gigabytes.

    Between `stage` and `commit` or `undo`, writes are pending. A read applies pending writes first, and saves the rows
    that they replace for `undo`.
    """

    def __init__(self, num_rows: int, like: Tensor, budget: int = DEFAULT_BUDGET, first: Tensor | None = None) -> None:
        self.first = first  # a row until it is written; None: zeros
        self.num_rows, self.size, self.budget = num_rows, like.numel(), budget
        self.dtype, self.device = like.dtype, like.device
        self.seen = np.zeros(num_rows, dtype=bool)
        self.changed = np.zeros(num_rows, dtype=bool)  # rows written since the last checkpoint, which saves only these
        self.bytes = num_rows * self.size * like.element_size()
        self.file: RowFile | None = None
        self.rows: Tensor | None = None
        self.waiting: Tensor | None = None
        self._pending: list[tuple[Ids, Tensor]] | None = None  # pending writes; None if writes are immediate
        self._replaced: list[tuple[Ids, Tensor]] = []  # rows that pending writes replaced before a read
        self._marks_at_stage = (self.seen, self.changed)  # `seen` and `changed` at the time of `stage`
        if self.bytes <= budget:
            self.rows = new_rows(num_rows, self.size, self.dtype, self.device, torch.zeros)
        else:
            self.file = RowFile(num_rows, self.size, self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as the rows that were ever written."""
        ids = np.flatnonzero(self.seen)
        return _table_of, (self.num_rows, self.budget, ids, self.take(ids), self.first)

    def spare(self, count: int) -> Tensor:
        """Return a buffer for new rows of the table; it is reused, since newly allocated memory is slow."""
        if self.waiting is None or len(self.waiting) < count:
            self.waiting = new_rows(count, self.size, self.dtype, self.device)
        return self.waiting if len(self.waiting) == count else self.waiting[:count]

    def stage(self) -> None:
        """Make writes pending until `commit` or `undo`."""
        self._pending, self._replaced, self._marks_at_stage = [], [], (self.seen.copy(), self.changed.copy())

    @property
    def is_staged(self) -> bool:
        """Whether writes are pending."""
        return self._pending is not None

    def written(self) -> list[Tensor]:
        """Return the rows of pending writes; all rows ever written if writes are immediate.

        Rows in the spare buffer are left out: they were checked when they arrived.
        """
        if self._pending is None:
            return [self.take(np.flatnonzero(self.seen))]
        fresh = [values for _, values in self._pending if not self.is_spare(values)]
        return fresh + [self._read(rows) for rows, _ in self._replaced]

    def commit(self) -> None:
        """Apply the pending writes."""
        pending, self._pending, self._replaced = self._pending or [], None, []
        for rows, values in pending:
            self._write(rows, values)

    def undo(self) -> None:
        """Discard the pending writes."""
        for rows, values in reversed(self._replaced):
            self._write(rows, values)
        self._pending, self._replaced = None, []
        self.seen, self.changed = self._marks_at_stage

    def _apply_pending(self) -> None:
        """Apply pending writes before a read, and save the rows that they replace."""
        while self._pending:
            rows, values = self._pending.pop(0)
            self._replaced.append((rows, self._read(rows)))
            self._write(rows, values)

    def run_of(self, rows: Ids) -> Tensor | None:
        """Return a view of these rows; None if they are in a file, not consecutive or not written yet."""
        self._apply_pending()
        return None if self._unwritten(rows) is not None else self._run_of(rows)

    def _unwritten(self, rows: Ids) -> Tensor | None:
        """Return which of these rows still are what all are at first; None if all were written, or all are zero."""
        if self.first is None or self.seen[rows].all():
            return None
        return torch.from_numpy(~self.seen[rows]).to(self.device)

    def _run_of(self, rows: Ids) -> Tensor | None:
        run = consecutive(rows)
        return None if self.rows is None or run is None else self.rows[run]

    def take(self, rows: Ids) -> Tensor:
        """Return a copy of these rows."""
        self._apply_pending()
        values, unwritten = self._read(rows), self._unwritten(rows)
        if unwritten is not None and self.first is not None:
            values[unwritten] = self.first
        return values

    def read(self, rows: Ids) -> Tensor:
        """Return these rows, which nobody may write to: a view where they are consecutive."""
        view = self.run_of(rows)
        return self.take(rows) if view is None else view

    def parts(self, rows: Ids, columns: Sequence[slice]) -> list[Tensor]:
        """Return runs of columns of these rows, which nobody may write to: views where the rows are consecutive."""
        values = self.read(rows)
        return [values[:, run] for run in columns]

    def _read(self, rows: Ids) -> Tensor:
        if self.rows is not None:
            if (view := self._run_of(rows)) is not None:
                return view.clone()
            return self.rows.index_select(0, torch.from_numpy(rows).to(self.device))
        assert self.file is not None
        return self.file.read(rows, 0, self.size).to(self.device)

    def columns(self, rows: Ids, start: int, out: Tensor) -> Tensor:
        """Copy columns of these rows, from column `start`, to `out`, and return it."""
        self._apply_pending()
        if self.rows is None:
            assert self.file is not None
            return out.copy_(self.file.read(rows, start, out.shape[1]))
        part = self.rows[:, start : start + out.shape[1]]
        return torch.index_select(part, 0, torch.from_numpy(rows).to(self.device), out=out)

    def put(self, rows: Ids, values: Tensor) -> None:
        """Write these rows; if the values are all rows in the spare buffer, swap the buffers without a copy."""
        self.seen[rows] = True
        self.changed[rows] = True
        if self._pending is None:
            self._write(rows, values)
        else:
            self._pending.append((rows, values))

    def _write(self, rows: Ids, values: Tensor) -> None:
        if self.rows is not None and self._is_whole_spare(rows, values):
            self.rows, self.waiting = self.waiting, self.rows
        elif self.rows is not None:
            put_rows(self.rows, rows, values)
        else:
            assert self.file is not None
            self.file.write(rows, values)

    def is_spare(self, values: Tensor) -> bool:
        """Whether these values are in the spare buffer, which only an engine in the same process can write."""
        return self.waiting is not None and self.waiting.data_ptr() == values.data_ptr()

    def _is_whole_spare(self, rows: Ids, values: Tensor) -> bool:
        """Whether the values are the whole spare buffer, with the rows of all clients in order."""
        if self.waiting is None or len(rows) != self.num_rows or self.waiting.shape != values.shape:
            return False
        return self.is_spare(values) and bool((rows == np.arange(self.num_rows)).all())


def _table_of(num_rows: int, budget: int, ids: Ids, rows: Tensor, first: Tensor | None) -> RowTable:
    """Return a table with these rows; the others are as at first."""
    table = RowTable(num_rows, rows.new_zeros(rows.shape[1]), budget, first)
    table.put(ids, rows)
    table.changed[:] = False
    return table


class TableExcerpt(RowTable):
    """Some rows of a table, found under the clients' own ids."""

    def __init__(self, clients: Ids, rows: Tensor) -> None:
        super().__init__(0, rows.new_empty(rows.shape[1]))
        self.clients, self.rows = clients, rows

    def __reduce__(self) -> tuple[Any, ...]:
        """Go to another process as these rows."""
        return TableExcerpt, (self.clients, self.rows)

    def run_of(self, rows: Ids) -> Tensor | None:
        """Return a view of these rows; None if they are not consecutive here."""
        return super().run_of(self._places(rows))

    def take(self, rows: Ids) -> Tensor:
        """Return a copy of these rows."""
        return super().take(self._places(rows))

    def columns(self, rows: Ids, start: int, out: Tensor) -> Tensor:
        """Copy columns of these rows, from column `start`, to `out`, and return it."""
        return super().columns(self._places(rows), start, out)

    def _places(self, rows: Ids) -> Ids:
        return np.searchsorted(self.clients, rows)


@dataclass(frozen=True, slots=True)
class Overlay:
    """A model in which some columns are each client's own."""

    model: Tensor
    columns: Tensor  # positions of the clients' own columns, ascending
    own: RowSource  # their values, one row per client

    def take(self, rows: Ids) -> Tensor:
        """Return the models of these clients, one row each."""
        models = self.model.repeat(len(rows), 1)
        models[:, self.columns] = self.own.read(rows)
        return models

    def read(self, rows: Ids) -> Tensor:
        """Return the models of these clients, one row each."""
        return self.take(rows)

    def parts(self, rows: Ids, columns: Sequence[slice]) -> list[Tensor]:
        """Return runs of columns of these models; one row where none of the columns are the clients' own."""
        own = self.own.read(rows)
        return [self._part(own, run) for run in columns]

    def _part(self, own: Tensor, run: slice) -> Tensor:
        """Return a run of columns; `own` has the clients' own values of all columns that are theirs."""
        shared = self.model[run].unsqueeze(0)
        first, last = torch.searchsorted(self.columns, self.columns.new_tensor([run.start, run.stop])).tolist()
        if first == last:
            return shared
        if last - first == run.stop - run.start:
            return own[:, first:last]
        values = shared.repeat(len(own), 1)
        values[:, self.columns[first:last] - run.start] = own[:, first:last]
        return values


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
    """Return memory for `count` rows; rows start at cache lines unless they are so short that padding wastes memory.

    Unaligned rows take a few percent longer to read and write.
    """
    per_line = LINE // dtype.itemsize
    room = size if size < LINE * per_line else -(-size // per_line) * per_line
    return make(count, room, dtype=dtype, device=device)[:, :size]


def put_rows(rows: Tensor, places: Ids, values: Tensor) -> None:
    """Write values to these rows: in one piece if they are consecutive, which takes a fifth of the time."""
    run = consecutive(places)
    if run is None:
        rows.index_copy_(0, torch.from_numpy(places).to(rows.device), values)
    else:
        rows[run].copy_(values)


def consecutive(places: Ids) -> slice | None:
    """Return these indices as a slice if they are consecutive and ascending, else None."""
    if not len(places) or places[-1] - places[0] + 1 != len(places) or (np.diff(places) != 1).any():
        return None
    return slice(int(places[0]), int(places[-1]) + 1)
