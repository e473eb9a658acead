"""Rows of numbers in a temporary file that has no name: it goes with the process, however that ends.

Rows are read and written by calls of the system, not through a mapping of the file. A write takes its room on the disk
before it returns, so a full disk is an error with a message; through a mapping it would end the process.
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
    """So many rows, all zero until they are written: those take no room on the disk."""

    def __init__(self, num_rows: int, size: int, dtype: torch.dtype) -> None:
        self.num_rows, self.size, self.dtype = num_rows, size, dtype
        self.bytes = num_rows * size * dtype.itemsize
        self._in_use = threading.Lock()  # workers share one place in the file
        with self._said_plainly():
            self.file = tempfile.TemporaryFile(prefix="turnout-", suffix=".rows", buffering=0)  # noqa: SIM115
            weakref.finalize(self, self.file.close)
            self.file.truncate(self.bytes)  # holes, which read as zeros

    def read(self, rows: Ids, start: int, count: int) -> Tensor:
        """Return so many columns of these rows, from this one on."""
        out = torch.empty(len(rows), count, dtype=self.dtype)
        place = out.view(torch.uint8).numpy()
        with self._said_plainly(), self._in_use:
            for at, row, length in _stretches(rows, whole=count == self.size):
                self.file.seek((row * self.size + start) * self.dtype.itemsize)
                left = place[at : at + length].reshape(-1).data
                while len(left):
                    left = left[_some(self.file.readinto(left)) :]
        return out

    def write(self, rows: Ids, values: Tensor) -> None:
        """Write these rows."""
        place = values.detach().cpu().contiguous().view(torch.uint8).numpy()
        with self._said_plainly(), self._in_use:
            for at, row, length in _stretches(rows, whole=True):
                self.file.seek(row * self.size * self.dtype.itemsize)
                left = place[at : at + length].reshape(-1).data
                while len(left):
                    left = left[_some(self.file.write(left)) :]

    @contextmanager
    def _said_plainly(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalError(
                f"What the rules remember of {self.num_rows} clients, up to {self.bytes / 1e9:.3g} GB, has no room in "
                f"{tempfile.gettempdir()}: {error.strerror or error}. Free some space there, or set TMPDIR to a folder "
                "on a larger disk."
            ) from error


def _stretches(rows: Ids, *, whole: bool) -> Iterator[tuple[int, int, int]]:
    """Yield each stretch of rows that lie one after another: its place in the list, its first row and its length.

    Parts of rows do not lie one after another: each is a stretch of its own.
    """
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1 if whole else np.arange(1, len(rows))
    edges = [0, *breaks.tolist(), len(rows)] if len(rows) else []
    for begin, end in pairwise(edges):
        yield begin, int(rows[begin]), end - begin


def _some(count: int | None) -> int:
    """Return how many bytes were moved; with none it would go on for ever."""
    if not count:
        raise OSError("the file ended")
    return count
