"""What survives: one SQLite database per output folder, one transaction a round."""

from turnout.journal.changed_data import Data
from turnout.journal.client_facts import ClientFacts
from turnout.journal.journal import Failure, Journal, RunInfo
from turnout.journal.load import Loaded, frames, load

__all__ = ["ClientFacts", "Data", "Failure", "Journal", "Loaded", "RunInfo", "frames", "load"]
