"""A real cluster of two nodes, in a network of its own: Ray listens on the host's address, not on loopback alone."""

import ctypes
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.tasks import blob_task
from turnout.engine import EngineWrapper, Ray
from turnout.engine.ray import blocks
from turnout.engine.ray.cluster import library
from turnout.requests import Evaluate

CLONE_NEWNET = 0x40000000
MARK = f"turnout-test-{uuid.uuid4().hex}"  # in the environment of every process that these tests start
SOON = {  # how quickly a cluster notices that a node died
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "0",
}
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="package")
def network() -> Iterator[None]:
    """Leave the machine's network for one that has only loopback, for these tests and what they start."""
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'turnout[ray]'")
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/self/ns/net", os.O_RDONLY) if Path("/proc/self/ns/net").exists() else -1
    if before < 0 or libc.unshare(CLONE_NEWNET):
        pytest.skip("a cluster is tested in a network namespace of its own, which this user cannot make")
    with pytest.MonkeyPatch.context() as patch:
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            for name, value in SOON.items():
                patch.setenv(name, value)
            patch.setenv("TURNOUT_TEST_MARK", MARK)
            patch.setenv("RAY_AUTH_MODE", "token")
            patch.setenv("RAY_AUTH_TOKEN", uuid.uuid4().hex * 2)
            patch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
            yield
        finally:
            libc.setns(before, CLONE_NEWNET)
            os.close(before)
            for left in marked():  # of nodes that tests killed, whose helpers notice only after minutes
                os.kill(left, signal.SIGKILL)


def marked() -> list[int]:
    """Return the processes that these tests started and that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = MARK.encode() in (folder / "environ").read_bytes()
            is_dead = ") Z " in (folder / "stat").read_text()
        except OSError:
            continue
        if is_ours and not is_dead and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


def wait_until_gone(but: frozenset[int] = frozenset(), seconds: float = 20.0) -> None:
    """Raise unless all processes of these tests, but for those named, end by themselves."""
    wait_until(lambda: not set(marked()) - but, seconds)


def wait_until(is_so: Callable[[], Any], seconds: float = 120.0, every: float = 0.05) -> None:
    """Raise unless something becomes true in time."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(every)


def new_cluster(*cores: int) -> Any:
    """Return a cluster with so many nodes; the first is the head."""
    library()  # sets Ray up before it is imported
    from ray.cluster_utils import Cluster

    how: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cores[0], **how})
    for count in cores[1:]:
        cluster.add_node(num_cpus=count, object_store_memory=100 << 20)
    return cluster


@pytest.fixture(scope="package")
def cluster(network: None) -> Iterator[Any]:
    """Two nodes: the head with two cores, and one with one."""
    made = new_cluster(2, 1)
    yield made
    made.shutdown()


class KeptOpen(EngineWrapper):
    """The real engine, which a study does not close: workers take seconds to start."""

    inside: Ray

    def close(self) -> None:
        pass

    def man(self) -> Any:
        """Wait until all three workers are ready, and return the connection."""
        if self.inside.opened is None:
            task = blob_task()
            self.answer([(task, Evaluate(round=0, model=task.layout.flatten(task.module), buffers=None))])
        assert self.inside.opened is not None
        cluster = self.inside.opened[0]
        wait_until(lambda: cluster.finished([]) == [] and [w.is_ready for w in cluster.workers] == [True] * 3)
        return cluster


@pytest.fixture(scope="package")
def on_three(cluster: Any) -> Iterator[KeptOpen]:
    """The engine with a worker on each of the three cores."""
    engine = KeptOpen(Ray(cluster.address))
    yield engine
    engine.inside.close()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small studies into many blocks."""
    monkeypatch.setattr(blocks, "BLOCK_WORK", 2e4)
    monkeypatch.setattr(blocks, "BLOCK_SAMPLES", 10)
