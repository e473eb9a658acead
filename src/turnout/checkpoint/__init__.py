"""What a run needs to go on: saved now and then, in files that are whole or not there."""

from turnout.checkpoint.files import Stored, verify
from turnout.checkpoint.last_model import LastModel, read_model
from turnout.checkpoint.schedule import Checkpoint
from turnout.checkpoint.store import FOLDER, CheckpointStore, Save

__all__ = ["FOLDER", "Checkpoint", "CheckpointStore", "LastModel", "Save", "Stored", "read_model", "verify"]
