"""Trackers: send the numbers of the journal to other tools too. To add one: one file here, one line below, one test."""

from turnout.track.mlflow import Mlflow
from turnout.track.open_trackers import Trackers, check_folder, check_installed, check_local
from turnout.track.tensorboard import TensorBoard
from turnout.track.tracker import Tracked, Tracker, numbers
from turnout.track.wandb import Wandb

__all__ = [
    "Mlflow",
    "TensorBoard",
    "Tracked",
    "Tracker",
    "Trackers",
    "Wandb",
    "check_folder",
    "check_installed",
    "check_local",
    "numbers",
]
