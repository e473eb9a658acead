"""What survives: one SQLite database per output folder, one transaction a round."""

from turnout.journal.holdings import Holdings
from turnout.journal.journal import Journal, RunInfo
from turnout.journal.load import Loaded, frames, load

__all__ = ["Holdings", "Journal", "Loaded", "RunInfo", "frames", "load"]
