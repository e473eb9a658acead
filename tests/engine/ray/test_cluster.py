"""A study on a real cluster: the same bits with any number of workers, and after workers and nodes died."""

import os
import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.engine.ray.modules import FIRST, LateFirst, Slow
from tests.support.engine_requests import answered, request
from tests.support.in_blocks import InBlocks
from tests.support.ray_cluster import KeptOpen, wait_until
from tests.support.runs import models_of
from tests.support.tasks import blob_federation, blob_task
from turnout import Study, arm, losses
from turnout.aggregation import FedAvg, Median
from turnout.data.federation import from_clients
from turnout.engine import Ray, Sequential, Task, Vectorised
from turnout.errors import ConfigError, EngineError
from turnout.filtering import Greedy
from turnout.local import SGD
from turnout.requests import Evaluate
from turnout.row_table import RowTable
from turnout.selection import PowerOfChoice, Uniform

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("cluster", "small_blocks")]

Models = dict[tuple[str, int], Tensor]


class Normalised(nn.Module):
    """A network with running statistics, which clients average."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def study() -> Study:
    """Return rules that need sums, rows, what clients remember, losses, scores and running statistics."""
    federation = blob_federation(20, low=4)
    federation = replace(federation, server=federation.test)
    sgd = SGD(lr=0.1, batch_size=4, steps=6)
    return Study(
        data=federation,
        model=lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double(),
        local=sgd,
        rounds=3,
        seeds=1,
        selection=Uniform(cohort_size=15),
        arms=(
            arm("FedAvg", aggregation=FedAvg()),
            arm("median", aggregation=Median()),
            arm("SCAFFOLD", local=replace(sgd, control="average")),
            arm("kept momentum", local=replace(sgd, momentum=0.5, momentum_reset="never")),
            arm("power of choice", selection=PowerOfChoice(cohort_size=8, pool_size=16)),
            arm("filter", filtering=Greedy(), selection=Uniform(cohort_size=5)),
            arm("running statistics", model=Normalised, local=replace(sgd, batch_size=64)),
        ),
    )


def digests(models: Models) -> dict[tuple[str, int], bytes]:
    return {place: model.numpy().tobytes() for place, model in models.items()}


@pytest.fixture(scope="module")
def reference() -> Models:
    """The models of the study on the reference engine."""
    return models_of(study().run(engine="sequential"))


def test_engine_the_same_bits_with_one_two_and_three_workers(on_three: KeptOpen, reference: Models) -> None:
    cluster = on_three.man()
    with_three = models_of(study().run(engine=on_three))
    assert len(with_three) == 7
    in_order = digests(models_of(study().run(engine=InBlocks(Vectorised(deterministic=True)))))
    assert digests(with_three) == in_order  # as if one process had done one block after another
    for place, model in with_three.items():
        torch.testing.assert_close(model, reference[place], rtol=1e-9, atol=1e-11)
    everyone = cluster.workers
    for count in (1, 2):
        cluster.wanted, cluster.workers = count, everyone[:count]
        assert digests(models_of(study().run(engine=on_three))) == digests(with_three)
        assert cluster.workers == everyone[:count]
    cluster.wanted, cluster.workers = None, everyone


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Study]:
    """A study whose clients take long enough to be disturbed."""
    module = Slow(str(tmp_path), seconds=0.05)
    for parameter in module.parameters():
        nn.init.constant_(parameter, 0.1)
    yield Study(data=blob_federation(12, low=8), model=module, local=SGD(lr=0.1, batch_size=4, steps=4), rounds=2)
    SLOW.append(module)


SLOW: list[nn.Module] = []  # kept: workers, which live on, tell a user's own modules apart by their ids


def at_work(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.iterdir()}


def run_and_disturb(study: Study, engine: Any, folder: Path, disturb: Any) -> tuple[bytes, list[str]]:
    """Run a study; when all its workers train, do something to them. Return the model and the failures."""
    failed: list[str] = []
    engine.man()
    for file in folder.iterdir():
        file.unlink()

    def watch() -> None:
        try:
            wait_until(lambda: len(at_work(folder)) >= 3)
            disturb()
        except AssertionError as error:
            failed.append(str(error))

    thread = threading.Thread(target=watch)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the module cannot be stacked
        result = study.run(engine=engine, progress=False)
    thread.join()
    (model,) = models_of(result).values()
    return model.numpy().tobytes(), failed


def test_engine_a_worker_that_is_killed_within_a_round_changes_nothing(
    slow: Study, on_three: KeptOpen, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before, failed = run_and_disturb(slow, on_three, tmp_path, lambda: None)
    first = at_work(tmp_path)
    assert not failed
    killed: list[int] = []

    def kill() -> None:
        killed.append(min(at_work(tmp_path)))
        os.kill(killed[0], 9)

    after, failed = run_and_disturb(slow, on_three, tmp_path, kill)
    assert not failed
    assert killed[0] in first
    assert after == before
    on_three.man()  # another takes its place
    assert capfd.readouterr() == ("", "")  # nothing of what Ray says of it is mixed in


def test_engine_a_node_that_is_killed_within_a_round_changes_nothing_and_a_new_one_is_used(
    cluster: Any, slow: Study, on_three: KeptOpen, tmp_path: Path
) -> None:
    before, failed = run_and_disturb(slow, on_three, tmp_path, lambda: None)
    assert not failed
    (node,) = cluster.worker_nodes
    after, failed = run_and_disturb(slow, on_three, tmp_path, lambda: cluster.remove_node(node, allow_graceful=False))
    assert not failed
    assert after == before
    cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    again, failed = run_and_disturb(slow, on_three, tmp_path, lambda: None)
    assert not failed  # three were at work at once
    assert again == before


def test_engine_blocks_that_come_back_out_of_order_are_added_in_order(on_three: KeptOpen) -> None:
    rng = np.random.default_rng(0)
    scale = [FIRST, *[1.0] * 11]
    pairs = [(torch.tensor(s * rng.uniform(0.6, 1, (8, 4))), torch.tensor(rng.integers(0, 3, 8))) for s in scale]
    task = Task(federation=from_clients(pairs, num_classes=3), module=LateFirst(), loss=losses.cross_entropy)
    asked = request(task, rng.uniform(0.1, 1.0, 12), SGD(lr=0.1, batch_size=4, steps=2))
    cluster = on_three.man()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the module cannot be stacked
        mine = answered(on_three, task, asked)
        theirs = answered(InBlocks(Vectorised(deterministic=True)), task, asked)
    assert len(cluster.workers) == 3
    assert torch.equal(mine.reduced, theirs.reduced)
    SLOW.append(task.module)


@pytest.mark.parametrize("has_sums", [False, True])
def test_engine_clients_with_starts_of_their_own_are_those_of_the_reference(has_sums: bool, on_three: KeptOpen) -> None:
    task = blob_task(13)
    starts = RowTable(13, task.layout.flatten(task.module))
    starts.put(np.arange(13), torch.randn(13, task.layout.size, generator=torch.Generator().manual_seed(1)).double())
    coefficients = np.linspace(0.1, 1, 13) if has_sums else None
    asked = request(task, coefficients, SGD(lr=0.1, batch_size=4, steps=3, momentum=0.5), starts=starts)
    mine, theirs = (answered(engine, task, asked) for engine in (on_three, Sequential()))
    name = "reduced" if has_sums else "delta"
    torch.testing.assert_close(getattr(mine, name), getattr(theirs, name), rtol=1e-9, atol=1e-11)


def test_engine_a_module_that_no_worker_could_import_travels_with_its_code(on_three: KeptOpen) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4, 3, dtype=torch.float64) / 7)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x @ self.scale) * 2.0

    def own_loss(output: Tensor, target: Tensor) -> Tensor:
        return output.square().sum(1) - 2 * output.gather(1, target[:, None]).squeeze(1)

    own = replace(study(), model=Own(), loss=own_loss, arms=())
    (mine,), (theirs,) = (models_of(replace(own, seeds=1).run(engine=e)).values() for e in (on_three, Sequential()))
    torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)


def test_error_of_a_module_names_the_client_as_it_does_locally(on_three: KeptOpen) -> None:
    study = Study(
        data=blob_federation(6, low=3, high=4),  # batches of 2 and 1
        model=Normalised(),
        local=SGD(lr=0.1, batch_size=2, epochs=1),
        rounds=1,
    )
    messages = []
    for engine in (on_three, Vectorised()):
        with pytest.raises(
            ConfigError, match=r"Normalised needs batches it can be trained on; .* Change local.batch"
        ) as e:
            study.run(engine=engine)
        messages.append(str(e.value))
    assert messages[0] == messages[1]


def test_error_a_process_has_one_connection_and_keeps_it(cluster: Any, on_three: KeptOpen) -> None:
    on_three.man()
    task = blob_task()
    question = (task, Evaluate(round=0, model=task.layout.flatten(task.module), buffers=None))
    with pytest.raises(EngineError, match=r"needs a connection of its own; .* Call ray.shutdown\(\) first"):
        Ray(cluster.address).answer([question])
    answer = answered(on_three, *question)
    assert set(answer.metrics) == {"loss", "accuracy"}
