"""Starting, losing and leaving a cluster, as a user sees it."""

import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import models_of
from tests.engine.ray.conftest import MARK, marked, new_cluster, wait_until, wait_until_gone
from turnout import load, load_study
from turnout.engine import Ray
from turnout.errors import ConfigError

STUDY = """
name = "small"
rounds = 6
seeds = 2
checkpoint = { rounds = 1 }

[data]
use = "gaussian-blobs"
clients = 12

[model]
use = "softmax"

[local]
use = "sgd"
lr = 0.1
steps = 5
batch_size = 5

[selection]
use = "uniform"
cohort_size = 6
"""

needs_network = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("network")]


def turnout_command(*arguments: str, folder: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "turnout", *arguments]
    return subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def rounds_in(folder: Path) -> int:
    """Return the last round that a journal has."""
    try:
        return int(load(folder).rounds["round"].max())
    except Exception:  # it is being made
        return -1
