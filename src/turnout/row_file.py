"""A table of rows in an unnamed temporary file, which the system deletes when the process ends.

Rows are read and written by system calls, not through a memory map. A write allocates disk space before it returns, so
a full disk raises an error; with a memory map it would kill the process.
"""

import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.errors import JournalError


class RowFile:
    """A fixed number of rows, all zero until they are written; unwritten rows take no disk space."""

    def __init__(self, num_rows: int, size: int, dtype: torch.dtype) -> None:
        self.num_rows, self.size, self.dtype = num_rows, size, dtype
        self.bytes = num_rows * size * dtype.itemsize
        self._in_use = threading.Lock()  # worker threads share one file position
        with self._disk_errors():
            self.file = tempfile.TemporaryFile(prefix="turnout-", suffix=".rows", buffering=0)  # noqa: SIM115
            weakref.finalize(self, self.file.close)
            self.file.truncate(self.bytes)  # a sparse file, which reads as zeros

    def read(self, rows: Ids, start: int, count: int) -> Tensor:
        """Return `count` columns of these rows, from column `start`."""
        out = torch.empty(len(rows), count, dtype=self.dtype)
        place = out.view(torch.uint8).numpy()
        with self._disk_errors(), self._in_use:
            for at, row, length in _runs(rows, whole=count == self.size):
                self.file.seek((row * self.size + start) * self.dtype.itemsize)
                left = place[at : at + length].reshape(-1).data
                while len(left):
                    left = left[_nonzero(self.file.readinto(left)) :]
        return out

    def write(self, rows: Ids, values: Tensor) -> None:
        """Write these rows."""
        place = values.detach().cpu().contiguous().view(torch.uint8).numpy()
        with self._disk_errors(), self._in_use:
            for at, row, length in _runs(rows, whole=True):
                self.file.seek(row * self.size * self.dtype.itemsize)
                left = place[at : at + length].reshape(-1).data
                while len(left):
                    left = left[_nonzero(self.file.write(left)) :]

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn an OSError into a JournalError that says what to do."""
        try:
            yield
        except OSError as error:
            raise JournalError(
                f"A table with a row for each of {self.num_rows} clients, up to {self.bytes / 1e9:.3g} GB, has no room "
                f"in {tempfile.gettempdir()}: {error.strerror or error}. Free some space there, or set TMPDIR to a "
                "folder on a larger disk."
            ) from error


def _runs(rows: Ids, *, whole: bool) -> Iterator[tuple[int, int, int]]:
    """Yield each run of consecutive rows: its index in the list, its first row and its length.

    Unless whole rows are read, each row is a run of its own, since parts of rows are not adjacent in the file.
    """
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1 if whole else np.arange(1, len(rows))
    edges = [0, *breaks.tolist(), len(rows)] if len(rows) else []
    for begin, end in pairwise(edges):
        yield begin, int(rows[begin]), end - begin


def _nonzero(count: int | None) -> int:
    """Return the number of transferred bytes; raise OSError if it is zero, which would repeat forever."""
    if not count:
        raise OSError("the file ended")
    return count
