"""How much a journal may hold: a few bytes can claim clients, rounds and tables that no machine has room for.

What turnout writes shrinks by a factor of ten or so when it is compressed, and a stranger's zeros by a thousand. What
is unpacked may take a gigabyte, or a hundred times what is stored.
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from turnout.errors import JournalError
from turnout.journal.codec import decode_counts
from turnout.journal.journal import Journal
from turnout.journal.opening import LOG
from turnout.journal.schema import FILE

FRAME_BYTES = 80  # of a client that was asked, in frames
EXPANDED, ALWAYS = 100, 1 << 30  # times what is stored, and bytes
MOST_IN_ALL_RUNS = 1 << 26  # clients
MOST_CLIENT_ROUNDS = 1 << 31  # clients times rounds, of all runs


def check_expansion(source: Path | Journal, needed_bytes: int) -> None:
    """Raise if so many bytes would be made of the few that a folder stores; a journal in memory is our own."""
    if isinstance(source, Journal) and source.folder is None:
        return
    folder = source if isinstance(source, Path) else source.folder
    assert folder is not None
    log = folder / LOG
    stored = (folder / FILE).stat().st_size + (log.stat().st_size if log.exists() else 0)
    if needed_bytes > ALWAYS + EXPANDED * stored:
        raise ValueError(f"{stored:,} bytes that claim to hold {needed_bytes:,}")


def check_can_show(rounds: pd.DataFrame) -> None:
    """Raise if rounds are of more clients than can be shown one by one, in time and in memory."""
    clients = int(rounds.groupby(["arm", "seed"], sort=False)["num_clients"].max().sum())
    if clients > MOST_IN_ALL_RUNS or int(rounds["num_clients"].sum()) > MOST_CLIENT_ROUNDS:
        raise JournalError(
            f"A report shows at most {MOST_IN_ALL_RUNS:,} clients of all runs, and {MOST_CLIENT_ROUNDS:,} clients "
            f"times rounds; this study has {clients:,} and {int(rounds['num_clients'].sum()):,}. "
            "Compare the arms with turnout compare, or read the frames with turnout.load."
        )


def check_held(found: Sequence[tuple[bytes, int]]) -> None:
    """Raise if a round claims other clients than those whose data its run holds; (their sizes, how many) of each."""
    for sizes, num_clients in found:
        held = len(decode_counts(sizes, num_clients))
        if held != num_clients:
            raise ValueError(f"{num_clients} clients, of whom {held} hold data")
