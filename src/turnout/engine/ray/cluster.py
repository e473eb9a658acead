"""A connection to a Ray cluster, and this engine's workers on it.

Without an address, a cluster of this machine alone is started, with a token and a folder of its own; it ends with the
connection. With an address, a cluster that others started is used, and left as it was.
"""

import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from turnout.engine.fingerprint import machine_fingerprint
from turnout.engine.ray.own_folder import OwnFolder
from turnout.engine.ray.worker import Worker
from turnout.engine.vectorised.autotune import cores
from turnout.errors import ConfigError, EngineError

LOCAL = "local"
POLL_SECONDS = 0.2  # between two looks at whether the study was asked to stop
GROW_SECONDS = 1.0  # between two looks at who is there
LOST_SECONDS = 5.0  # without an answer of the cluster's head
ANSWER_SECONDS = 5.0  # that the head may take to answer at first
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"  # with which a gRPC client begins
SETTINGS_FRAME = 4  # the kind of frame with which a gRPC server begins
SAME_VERSIONS = ("python", "turnout", "torch", "numpy")
SETTINGS = {  # of Ray, where the user has not set them
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "error",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what it would say of dead workers amid a study's own output
}
RESUME = (
    "The study's folder has all rounds up to the last checkpoint: resume it with turnout resume, on this machine or, "
    "with --address, on another cluster."
)


@dataclass(eq=False, slots=True)
class Remote:
    """A worker, as the driver sees it."""

    actor: Any
    starting: Any  # the reference to what it tells of itself when it is ready
    is_ready: bool = False
    node: str = ""
    tasks: set[int] = field(default_factory=set)  # that it has
    at_work: int = 0  # blocks that it was handed


class Cluster:
    """A connection, and the workers."""

    def __init__(self, address: str, workers: int | None, store_bytes: int, patience_seconds: float) -> None:
        self.ray, self.address, self.wanted, self.patience = library(), address, workers, patience_seconds
        if self.ray.is_initialized():
            raise EngineError(
                "The Ray engine needs a connection of its own; this process is already connected to a cluster. "
                "Call ray.shutdown() first, and pass the cluster's address to the engine."
            )
        self.workers: list[Remote] = []
        self.warned: set[str] = set()  # what workers warned of: each of them would, and is told of once
        self.looked_at = time.monotonic()
        self.silent_since: float | None = None  # when the head was first found not to answer
        self.unmanned_since: float | None = None  # when no worker was first found ready
        self.last_death = ""
        self.folder = OwnFolder()
        try:
            self._connect(store_bytes)
            host, _, port = self.ray.get_runtime_context().gcs_address.rpartition(":")
            self.head = (host.strip("[]"), int(port))
            self.remote = self.ray.remote(Worker)
            self.grow()
        except BaseException:
            self.close()
            raise

    def _connect(self, store_bytes: int) -> None:
        how: dict[str, Any] = {"address": self.address}
        if self.address == LOCAL:
            use_token()
            how |= {"num_cpus": self.wanted or cores(), "include_dashboard": False, "_temp_dir": self.folder.name}
            how["object_store_memory"] = store_bytes
        else:
            check_answers(self.address)
        with _signals_kept(), _quiet():
            try:
                self.ray.init(**how, log_to_driver=False, logging_level=logging.CRITICAL)
            except Exception as error:
                where = "on this machine" if self.address == LOCAL else f"at {self.address}"
                said = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
                raise EngineError(
                    f"The Ray engine needs a cluster {where} that takes it in; there is none: {said}. Check the "
                    "cluster's token (RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH), that this machine is one of its nodes, "
                    "and that Python and Ray have the same versions there."
                ) from error

    def close(self) -> None:
        """End the workers and the connection, and a cluster that was started for it."""
        with _quiet(), suppress(Exception):  # a cluster that is lost cannot be asked to end anything
            for worker in self.workers:
                self.ray.kill(worker.actor)
        with _quiet():
            self.ray.shutdown()
        self.folder.remove()

    def finished(self, at_work: Sequence[Any]) -> list[Any]:
        """Return which of these references have an answer or an error, after a short wait at most."""
        self.grow()
        starting = {worker.starting: worker for worker in self.workers if not worker.is_ready}
        if not at_work and not starting:
            time.sleep(POLL_SECONDS)
            return []
        done, _ = self.ray.wait([*at_work, *starting], timeout=POLL_SECONDS)
        for ref in done:
            if ref in starting:
                self._welcome(starting[ref])
        return [ref for ref in done if ref not in starting]

    def grow(self) -> None:
        """Use all nodes that are there, now and then; raise EngineError if the cluster is lost."""
        now = time.monotonic()
        if self.workers and now - self.looked_at < GROW_SECONDS:
            return
        self.looked_at = now
        if not is_open(self.head, timeout=1.0):
            self.silent_since = self.silent_since or now
            if now - self.silent_since > LOST_SECONDS:
                raise EngineError(f"The Ray cluster is lost: its head does not answer any more. {RESUME}")
            return
        self.silent_since = None
        wanted = self.wanted or int(self.ray.cluster_resources().get("CPU", 0))
        for _ in range(wanted - len(self.workers)):
            actor = self.remote.options(num_cpus=1, scheduling_strategy="SPREAD").remote()
            self.workers.append(Remote(actor, actor.describe.remote()))
        self._check_manned(now)

    def _check_manned(self, now: float) -> None:
        """Raise if there has been no worker for too long."""
        if any(worker.is_ready for worker in self.workers):
            self.unmanned_since = None
            return
        self.unmanned_since = self.unmanned_since or now
        if now - self.unmanned_since > self.patience:
            why = self.last_death or "no core is free, or the machine is too busy to start one"
            raise EngineError(
                f"The Ray cluster is lost: for {self.patience:g} seconds no worker has come up on it ({why}). {RESUME}"
            )

    def bury(self, worker: Remote, error: Exception) -> None:
        """Forget a worker that died, and those on nodes that did; others are started in their place."""
        self.last_death = str(error).strip().partition("\n")[0]
        with suppress(Exception):
            self.ray.kill(worker.actor)
        alive = {node["NodeID"] for node in self.ray.nodes() if node["Alive"]} if is_open(self.head, 1.0) else set()
        self.workers = [w for w in self.workers if w is not worker and (not w.is_ready or w.node in alive)]

    def _welcome(self, worker: Remote) -> None:
        """Take in a worker that has started; raise if it could not do the same work."""
        try:
            told = self.ray.get(worker.starting)
        except self.ray.exceptions.RayError as error:
            self.bury(worker, error)
            return
        own = machine_fingerprint(torch.device("cpu"))
        for name in SAME_VERSIONS:
            if told["versions"][name] != own["versions"][name]:
                raise EngineError(
                    f"Every node needs the same versions; {told['host']} has {name} {told['versions'][name]}, this "
                    f"machine {own['versions'][name]}. Install the same version of {name} on all nodes."
                )
        if told["machine"]["instructions"] != own["machine"]["instructions"]:
            warnings.warn(
                f"{told['host']} has other instructions ({told['machine']['instructions']}) than this machine "
                f"({own['machine']['instructions']}): the last digits may depend on which node did a block.",
                stacklevel=2,
            )
        worker.node, worker.is_ready = told["node"], True


def library() -> Any:
    """Return Ray, imported when it is first needed; set up to ask for a token, and not to send or print anything."""
    if "ray" not in sys.modules:  # it reads them once; imported by others, it protects a cluster of our own by itself
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            "The Ray engine needs the package ray; it is not installed. "
            "Install turnout with its extra: pip install 'turnout[ray]'."
        ) from error
    return ray


def use_token() -> None:
    """Protect a cluster of our own by a token: the user's, or a new one that nobody else knows."""
    known = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if not known and not (Path.home() / ".ray" / "auth_token").exists():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def check_answers(address: str) -> None:
    """Raise unless the head of a Ray cluster can be reached at this address, HOST:PORT."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ConfigError(
            f"A Ray cluster's address is HOST:PORT of its head, such as 10.0.0.1:6379; got {address!r:.80}. "
            "ray start --head prints it."
        )
    if not is_open((host.strip("[]"), int(port)), ANSWER_SECONDS, speaks="RAY_USE_TLS" not in os.environ):
        raise ConfigError(
            f"The Ray engine needs the head of a cluster at {address}; nobody answered within {ANSWER_SECONDS:g} "
            "seconds. Check the address and that ray start --head runs there, or leave the address out to use this "
            "machine alone."
        )


def is_open(place: tuple[str, int], timeout: float, speaks: bool = False) -> bool:
    """Whether somebody takes connections there and, if asked for, begins like a gRPC server."""
    try:
        with socket.create_connection(place, timeout=timeout) as connection:
            if not speaks:
                return True
            connection.settimeout(timeout)
            connection.sendall(PREFACE)
            head = connection.recv(4)
            return len(head) == 4 and head[3] == SETTINGS_FRAME
    except (OSError, OverflowError):
        return False


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put the handler of SIGTERM back, which Ray replaces: whoever runs a study has its own."""
    in_front = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if in_front and before is not None:
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep out of standard error what Ray's own libraries write there, past Python."""
    try:
        kept = os.dup(2)
    except OSError:  # there is none
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
