"""Start a run on a SuperLink that is up, or continue it from the journal, and follow it to its end."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnout.deploy.folder import SUPERLINK, SWITCHES, Folder
from turnout.errors import ConfigError, JournalError
from turnout.journal import Journal
from turnout.journal.read_rounds import RoundSummary, read_summaries

ENDED = "finished"
POLL_SECONDS = 1.0  # between looks at the journal
ASK_SECONDS = 10.0  # between questions to Flower, each of which is a process


def environment(folder: Folder) -> dict[str, str]:
    """Return the environment of Flower's commands: its own folder, nothing sent home, nothing installed."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **SWITCHES, "FLWR_HOME": str(folder.flower_home), "PATH": beside}


def flwr(folder: Folder, *arguments: str) -> Any:
    """Run a command of Flower and return what it says as JSON; raise ConfigError if it fails."""
    command = [str(Path(sys.executable).parent / "flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=120)
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"flwr {arguments[0]} failed ({type(error).__name__}). Is {folder.path}'s server up?"
        ) from error
    if done.returncode or said.get("success") is False:
        raise ConfigError(f"flwr {arguments[0]} failed: {said.get('error-message', done.stderr)[:300]}")
    return said


def check_server(folder: Folder) -> None:
    """Raise if nobody listens where the SuperLink should."""
    port = folder.settings().port
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError as error:
        raise ConfigError(
            f"The SuperLink must be up on 127.0.0.1:{port} ({error.strerror or error}). Start it with: "
            f"{folder.path / 'start-server.sh'}"
        ) from error


def start(folder: Folder) -> int:
    """Start a Flower run of the app and return its number."""
    check_server(folder)
    config = f"folder={json.dumps(str(folder.path.absolute()))}"
    return int(flwr(folder, "run", str(folder.app), SUPERLINK, "--run-config", config)["run-id"])


def state_of(folder: Folder, run: int) -> str:
    """Return the state of a Flower run, as Flower calls it."""
    runs = flwr(folder, "list", SUPERLINK, "--run-id", str(run))["runs"]
    return str(runs[0]["status"]) if runs else "unknown"


def follow(folder: Folder, run: int, on_round: Callable[[RoundSummary], None]) -> bool:
    """Call back after each round, until the run has ended; return whether the study is finished."""
    told, asked = -1, time.monotonic()
    while True:
        told = _tell(folder, told, on_round)
        if is_finished(folder):
            return True
        if time.monotonic() - asked > ASK_SECONDS:
            if state_of(folder, run).startswith(ENDED):
                _tell(folder, told, on_round)
                return is_finished(folder)
            asked = time.monotonic()
        time.sleep(POLL_SECONDS)


def _tell(folder: Folder, told: int, on_round: Callable[[RoundSummary], None]) -> int:
    try:
        with Journal.open(folder.run) as journal:
            rounds = read_summaries(journal, told)
    except JournalError:  # there is no journal yet
        return told
    for one in rounds:
        on_round(one)
    return rounds[-1].round if rounds else told


def is_finished(folder: Folder) -> bool:
    """Return whether the study has had all its rounds."""
    try:
        with Journal.open(folder.run) as journal:
            return bool(journal.finished_runs())
    except JournalError:
        return False
