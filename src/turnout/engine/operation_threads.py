"""How many threads one operation of PyTorch may use."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL = 50_000  # parameters below which operations are too small to share between threads


@contextmanager
def operation_threads(count: int) -> Iterator[None]:
    """Let operations use so many threads, and put it back afterwards."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)
