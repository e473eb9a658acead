"""Limits on the size of a journal's contents: a small hostile file can claim more data than fits in memory.

Compression shrinks what turnout writes by a factor of about ten, and a hostile file of zeros by a factor of a thousand.
Unpacked data may take one gigabyte, or a hundred times the bytes that are stored.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from turnout.errors import JournalError
from turnout.journal.codec import decode_counts
from turnout.journal.journal import Journal
from turnout.journal.open_database import LOG
from turnout.journal.schema import FILE

FRAME_BYTES = 104  # that one row of a frame of clients takes
MOST_EXPANSION, ALWAYS_ALLOWED_BYTES = 100, 1 << 30
MOST_IN_ALL_RUNS = 1 << 26  # clients, summed over runs
MOST_CLIENT_ROUNDS = 1 << 31  # clients times rounds, summed over runs


def check_expansion(source: Path | Journal, needed_bytes: int) -> None:
    """Raise if unpacking needs far more bytes than the folder stores; a journal in memory is trusted."""
    if isinstance(source, Journal) and source.folder is None:
        return
    folder = source if isinstance(source, Path) else source.folder
    assert folder is not None
    log = folder / LOG
    stored = (folder / FILE).stat().st_size + (log.stat().st_size if log.exists() else 0)
    if needed_bytes > ALWAYS_ALLOWED_BYTES + MOST_EXPANSION * stored:
        raise ValueError(f"{stored:,} bytes that claim to hold {needed_bytes:,}")


def check_can_show(rounds: pd.DataFrame) -> None:
    """Raise if a report would have to show more clients one by one than time and memory allow."""
    clients = int(rounds.groupby(["arm", "seed"], sort=False)["num_clients"].max().sum())
    if clients > MOST_IN_ALL_RUNS or int(rounds["num_clients"].sum()) > MOST_CLIENT_ROUNDS:
        raise JournalError(
            f"A report shows at most {MOST_IN_ALL_RUNS:,} clients of all runs, and {MOST_CLIENT_ROUNDS:,} clients "
            f"times rounds; this study has {clients:,} and {int(rounds['num_clients'].sum()):,}. "
            "Compare the arms with turnout compare, or read the frames with turnout.load."
        )


def check_num_clients(sizes_and_counts: Sequence[tuple[bytes, int]]) -> None:
    """Raise if a round's number of clients differs from its run's; given pairs (encoded data sizes, num_clients)."""
    for sizes, num_clients in sizes_and_counts:
        with_data = len(decode_counts(sizes, num_clients))
        if with_data != num_clients:
            raise ValueError(f"{num_clients} clients, of whom {with_data} hold data")
