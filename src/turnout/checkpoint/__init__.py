"""Checkpoints: the state that a run needs to resume, and last models, in files that are complete or absent."""

from turnout.checkpoint.last_model import LastModel, read_model
from turnout.checkpoint.schedule import Checkpoint
from turnout.checkpoint.store import FOLDER, CheckpointStore, Save
from turnout.checkpoint.tensor_files import Stored, verify

__all__ = ["FOLDER", "Checkpoint", "CheckpointStore", "LastModel", "Save", "Stored", "read_model", "verify"]
