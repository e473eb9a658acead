"""A real SuperLink and real SuperNodes on loopback, with TLS and keys. What is started here is ended here."""

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from turnout.deploy.create import create
from turnout.deploy.folder import Folder
from turnout.deploy.launch import environment
from turnout.errors import TurnoutError
from turnout.journal import Journal, load
from turnout.journal.locking import LOCK, is_being_written
from turnout.journal.read_rounds import read_summaries

DEVICE = """
import time

import numpy as np


def load_data(device):
    rng = np.random.default_rng(device)
    x, y = rng.normal(size=(20 + 7 * device, 4)).astype("float32"), rng.integers(0, 3, 20 + 7 * device)
    return {"train": (x, y), "num_classes": 3}


def load_server():
    rng = np.random.default_rng(99)
    return {"test": (rng.normal(size=(30, 4)).astype("float32"), rng.integers(0, 3, 30))}
"""
LIMITS = """[limits]
deadline_seconds = {deadline}
grace_seconds = {grace}
late_seconds = {late}
start_with = {start}
"""


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


def open_files(pid: int) -> set[tuple[int, int]]:
    """Return the files that a process has open, by their numbers."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            stat = entry.stat()
            found.add((stat.st_dev, stat.st_ino))
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
        """Start a process with a log of its own; one of the same name must have been told to end."""
        if name in self.started:
            self.started[name].wait(60)
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

    def device(self, number: int, through: int | None = None) -> None:
        """Start a SuperNode, which may reach the server through another port."""
        script = str(self.folder.device(number) / "start.sh")
        where = {} if through is None else {"SERVER": f"127.0.0.1:{through}"}
        self.start(f"device-{number}", [script], DEVICE_PORT=str(free_port()), **where)

    def pid(self, name: str) -> int:
        """Return the number of a process."""
        return self.started[name].pid

    def kill_server_app(self, folder: Folder) -> None:
        """Kill the ServerApp that writes a folder's journal."""
        lock = os.stat(folder.run / LOCK)
        (pid,) = [pid for pid in descendants(self.pid("server")) if (lock.st_dev, lock.st_ino) in open_files(pid)]
        os.kill(pid, signal.SIGKILL)
        wait(lambda: not is_being_written(folder.run), 60)

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
        time.sleep(0.3)
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


def sibling(folder: Folder, name: str, study: str, devices: Sequence[int], **limits: Any) -> Folder:
    """Return a folder with another study for the same server and some of its devices, numbered from 0."""
    other = Folder(folder.path.with_name(name))
    shutil.copytree(folder.app, other.app)
    other.study.write_text(study)
    for part in ("certificates", "flower"):
        (other.path / part).symlink_to(folder.path / part)
    for part in ("keys", "devices"):
        (other.path / part).mkdir()
    for number, device in enumerate(devices):
        other.public_key(number).symlink_to(folder.public_key(device))
        other.device(number).symlink_to(folder.device(device))
    port = folder.settings().port
    (other.path / "deployment.toml").write_text(f"devices = {len(devices)}\nport = {port}\n{LIMITS.format(**limits)}")
    return other


NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/server.conf;
}}
"""


def start_nginx(fleet: Fleet) -> int:
    """Start nginx with the folder's configuration, on another port; return the port."""
    place, port = fleet.folder.path / "nginx", free_port()
    place.mkdir()
    made = (fleet.folder.path / "nginx.conf").read_text()
    assert made.count("listen 443 ssl;") == 1
    (place / "server.conf").write_text(made.replace("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"))
    (place / "nginx.conf").write_text(NGINX.format(folder=place))
    fleet.start("nginx", ["nginx", "-p", str(place), "-c", str(place / "nginx.conf")])
    wait(lambda: is_open(port), 30, lambda: fleet.log("nginx"))
    return port


def is_open(port: int) -> bool:
    """Return whether somebody listens on a port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


class Replaying(ThreadingHTTPServer):
    """A network that delivers every answer of a device again once it is complete. It has the server's own key."""

    daemon_threads = True

    def __init__(self, folder: Folder) -> None:
        super().__init__(("127.0.0.1", 0), _Twice)
        self.behind = folder.settings().port
        self.trusted = ssl.create_default_context(cafile=str(folder.certificates / "ca.crt"))
        self.pushed: list[tuple[str, dict[str, str], bytes]] = []  # the requests of an answer: path, headers, body
        self.again: list[tuple[str, int]] = []  # path and status of what was delivered a second time
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder.certificates / "server.crt", folder.certificates / "server.key")
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a device that is killed breaks its connections."""

    def close(self) -> None:
        """Stop delivering."""
        self.shutdown()
        self.server_close()
        self.thread.join()


class _Twice(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replaying

    def do_POST(self) -> None:
        sent = self.path, dict(self.headers.items()), self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, headers, answer = self._deliver(*sent)
        if "/push-" in self.path:
            self.server.pushed.append(sent)
        elif self.path.endswith("/pull-messages"):  # whoever asks for the next message has answered the last
            complete, self.server.pushed = self.server.pushed, []
            self.server.again += [(again[0], self._deliver(*again)[0]) for again in complete]
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _deliver(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        link = HTTPSConnection("127.0.0.1", self.server.behind, context=self.server.trusted, timeout=60)
        with contextlib.closing(link):
            link.request("POST", path, body, headers)
            with contextlib.closing(link.getresponse()) as came:
                return came.status, came.getheaders(), came.read()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


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
