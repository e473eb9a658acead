"""A real SuperLink and real SuperNodes on loopback, with TLS and keys. What is started here is ended here."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turnout.deploy.create import create
from turnout.deploy.folder import Folder
from turnout.deploy.launch import environment
from turnout.errors import TurnoutError
from turnout.journal import Journal, load
from turnout.journal.read_rounds import read_summaries

DEVICE = """
import numpy as np


def load_data(device: Any) -> Any:
    rng = np.random.default_rng(device)
    x, y = rng.normal(size=(20 + 7 * device, 4)).astype("float32"), rng.integers(0, 3, 20 + 7 * device)
    return {"train": (x, y), "num_classes": 3}


def load_server() -> Any:
    rng = np.random.default_rng(99)
    return {"test": (rng.normal(size=(30, 4)).astype("float32"), rng.integers(0, 3, 30))}
"""
LIMITS = "[limits]\ndeadline_seconds = {deadline}\ngrace_seconds = {grace}\nstart_with = {start}\n"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def descendants(pid: int) -> list[int]:
    """Return a process and all that it has started, itself first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop(0))
        todo += parents.get(found[-1], [])
    return found


def send(pid: int, what: signal.Signals) -> None:
    """Send a signal to a process that was started here, and to all that it has started."""
    for one in descendants(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, what)


class Fleet:
    """A folder's server and devices as processes."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], **variables: str) -> subprocess.Popen[bytes]:
        """Start a process with a log of its own."""
        env = {**environment(self.folder), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **variables}
        env.pop("FLWR_HOME")
        with open(self.folder.path / f"{name}.log", "ab") as log:
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        self.started[name] = process
        return process

    def log(self, name: str) -> str:
        """Return what a process has said."""
        return (self.folder.path / f"{name}.log").read_text(errors="replace")

    def server(self) -> None:
        """Start the SuperLink and wait until the keys are registered."""
        self.start("server", [str(self.folder.path / "start-server.sh")])
        wait(lambda: "is ready" in self.log("server"), 120, lambda: self.log("server"))

    def device(self, number: int, **variables: str) -> None:
        """Start a SuperNode."""
        script = str(self.folder.device(number) / "start.sh")
        self.start(f"device-{number}", [script], DEVICE_PORT=str(free_port()), **variables)

    def pid(self, name: str) -> int:
        """Return the number of a process."""
        return self.started[name].pid

    def server_app(self) -> int | None:
        """Return the process of the ServerApp, if there is one."""
        for pid in descendants(self.pid("server")):
            with contextlib.suppress(OSError):
                if b"flwr-serverapp" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return None

    def kill_server_app(self) -> None:
        """Kill the ServerApp."""
        pid = self.server_app()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait(lambda: self.server_app() is None, 60)

    def end(self) -> None:
        """End everything."""
        for process in self.started.values():
            send(process.pid, signal.SIGCONT)
            send(process.pid, signal.SIGKILL)
            process.wait(10)


def wait(until: Callable[[], Any], seconds: float, why: Callable[[], str] = lambda: "") -> Any:
    """Return what a condition says once it holds; fail after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = until()
        if found:
            return found
        time.sleep(1)
    raise AssertionError(f"did not happen in {seconds} s. {why()[-2000:]}")


def num_rounds(folder: Folder) -> int:
    """Return how many rounds a journal has that may not be there yet; round 0 is one."""
    try:
        with Journal.open(folder.run) as journal:
            return len(read_summaries(journal, -1))
    except TurnoutError:
        return 0


def records(folder: Folder) -> list[dict[str, Any]]:
    """Return the rounds of a journal that may not be there yet, each with its clients."""
    try:
        loaded = load(folder.run)
    except TurnoutError:
        return []
    rounds: list[Any] = loaded.rounds.to_dict("records")
    for row in rounds:
        mine = loaded.clients[loaded.clients["round"] == row["round"]]
        row["clients"] = {int(one["client"]): one for one in mine.to_dict("records")}
    return rounds


def make(path: Path, study: str, devices: int) -> Folder:
    """Make a deployment's folder with small made-up samples."""
    file = path.with_suffix(".toml")
    file.write_text(study)
    folder = create(path, file, devices, ("localhost", "127.0.0.1"), free_port())
    (folder.app / "device.py").write_text(DEVICE)
    return folder


def sibling(folder: Folder, name: str, study: str, devices: int, **limits: Any) -> Folder:
    """Return a folder with another study for the same server and devices."""
    other = Folder(folder.path.with_name(name))
    shutil.copytree(folder.app, other.app)
    other.study.write_text(study)
    for part in ("certificates", "keys", "flower", "devices"):
        (other.path / part).symlink_to(folder.path / part)
    port = folder.settings().port
    (other.path / "deployment.toml").write_text(f"devices = {devices}\nport = {port}\n{LIMITS.format(**limits)}")
    return other


@contextlib.contextmanager
def running(folder: Folder) -> Iterator[Fleet]:
    """Start a folder's server; end it and its devices afterwards."""
    fleet = Fleet(folder)
    try:
        fleet.server()
        yield fleet
    finally:
        fleet.end()


FLOWER = Path(sys.executable).parent
