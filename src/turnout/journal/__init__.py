"""What survives: one SQLite database per output folder, one transaction a round."""

from turnout.journal.changed_data import Data
from turnout.journal.holdings import Holdings
from turnout.journal.journal import Failure, Journal, RunInfo
from turnout.journal.load import Loaded, frames, load

__all__ = ["Data", "Failure", "Holdings", "Journal", "Loaded", "RunInfo", "frames", "load"]
