"""A real cluster of two nodes, in a network of its own: Ray listens on the host's address, not on loopback alone."""

import ctypes
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray_cluster import MARK, KeptOpen, marked, new_cluster
from turnout.engine import Ray
from turnout.engine.ray import blocks

CLONE_NEWNET = 0x40000000
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


@pytest.fixture(scope="package")
def cluster(network: None) -> Iterator[Any]:
    """Two nodes: the head with two cores, and one with one."""
    made = new_cluster(2, 1)
    yield made
    made.shutdown()


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
