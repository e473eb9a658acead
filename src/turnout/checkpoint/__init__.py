"""What a run needs to go on: saved now and then, in files that are whole or not there."""

from turnout.checkpoint.cadence import Checkpoint
from turnout.checkpoint.files import Stored, verify
from turnout.checkpoint.keeper import FOLDER, Keeper, Save
from turnout.checkpoint.last_model import LastModel, read_model

__all__ = ["FOLDER", "Checkpoint", "Keeper", "LastModel", "Save", "Stored", "read_model", "verify"]
