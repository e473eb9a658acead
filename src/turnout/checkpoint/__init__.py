"""What a run needs to go on: saved now and then, in files that are whole or not there."""

from turnout.checkpoint.cadence import Checkpoint
from turnout.checkpoint.files import Stored, tensors_of, verify
from turnout.checkpoint.keeper import FOLDER, Keeper, Save

__all__ = ["FOLDER", "Checkpoint", "Keeper", "Save", "Stored", "tensors_of", "verify"]
