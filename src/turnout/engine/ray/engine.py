"""The Ray engine: the questions of a round, cut into blocks, on all workers of a cluster at once.

Every worker has the vectorised engine, which runs in one fixed way with one operation thread. Blocks and the order in
which their sums are added follow from the questions alone: the result has the same bits with any number of workers,
and after some of them died. It equals that of the local engines up to float rounding.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch

from turnout.engine.fingerprint import machine_fingerprint
from turnout.engine.ray.blocks import RULE
from turnout.engine.ray.cluster import LOCAL, Cluster, check_answers, library
from turnout.engine.ray.dispatch import Dispatch
from turnout.engine.ray.task_store import TaskStore
from turnout.engine.task import Question
from turnout.engine.watch import Watch
from turnout.errors import ConfigError
from turnout.requests import Answer

STARTING = "starting Ray"


class Ray:
    """Blocks of clients on the workers of a Ray cluster, on the CPU."""

    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        store_bytes: int = 2 << 30,
        patience_seconds: float = 180.0,
    ) -> None:
        """Check that Ray is installed and that the address answers; the connection is made when it is first needed.

        Args:
            address: HOST:PORT of the head of a cluster that runs; None starts one on this machine, for the time of a
                study.
            workers: number of workers, each with one core, 1 or more; None has one per core of the cluster, also of
                nodes that join later.
            store_bytes: size of the object store of a cluster on this machine, 100 MB or more. Samples are in it once;
                what does not fit goes to disk.
            patience_seconds: how long to wait for a worker when there is none, before the cluster counts as lost.
        """
        if workers is not None and workers < 1:
            raise ConfigError(f"The Ray engine needs workers >= 1; got {workers}. Change workers, or leave it out.")
        library()
        if address is not None and address != LOCAL:
            check_answers(address)
        self.address, self.workers = address or LOCAL, workers
        self.store_bytes, self.patience_seconds = store_bytes, patience_seconds
        self.device = torch.device("cpu")
        self.watch = Watch()
        self.opened: tuple[Cluster, TaskStore] | None = None

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer per question, in order; the blocks of all of them are spread over the workers."""
        if not questions:
            return []
        if any(task.federation.drift is not None for task, _ in questions):
            raise ConfigError(
                "The Ray engine needs samples that do not change with time; these data drift. "
                "Run the study with the vectorised engine.",
                setting="data.use",
            )
        if self.opened is None:
            self.watch.tell(STARTING)
            cluster = Cluster(self.address, self.workers, self.store_bytes, self.patience_seconds)
            self.opened = cluster, TaskStore(cluster.ray)
        return Dispatch(*self.opened, questions, self.watch).answers()

    def close(self) -> None:
        """End the workers and the connection; the next question makes them anew."""
        opened, self.opened = self.opened, None
        if opened is not None:
            opened[0].close()

    def fingerprint(self) -> dict[str, Any]:
        """Return the software, the kind of processor and how work is cut; how many cores there are plays no part."""
        own = machine_fingerprint(self.device)
        kept = {name: own["machine"][name] for name in ("system", "processor", "instructions")}
        versions = {**own["versions"], "ray": version("ray")}
        return {"device": own["device"], "versions": versions, "machine": kept, "blocks": dict(RULE)}

    def tuning(self) -> dict[str, dict[str, Any]]:
        """Return nothing: there is one way to run."""
        return {}

    def use_tuning(self, ways: Mapping[str, Mapping[str, Any]]) -> None:
        """Leave it: there is one way to run."""
