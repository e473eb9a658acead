"""The journal: everything a study records, in one SQLite database per output folder, one transaction per round."""

from turnout.journal.changed_data import Data
from turnout.journal.client_facts import ClientFacts
from turnout.journal.journal import Failure, Journal, RunInfo
from turnout.journal.load import Loaded, frames, load

__all__ = ["ClientFacts", "Data", "Failure", "Journal", "Loaded", "RunInfo", "frames", "load"]
