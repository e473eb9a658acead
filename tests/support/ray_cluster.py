"""Real Ray clusters for tests, and the processes that they leave."""

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.tasks import blob_task
from turnout.engine import EngineWrapper, Ray
from turnout.engine.ray.cluster import library
from turnout.requests import Evaluate

MARK = f"turnout-test-{uuid.uuid4().hex}"  # in the environment of every process that these tests start


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


def wait_until_gone(but: frozenset[int] = frozenset(), seconds: float = 60.0) -> None:
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
