"""Every local × aggregation × server combination runs, or is refused with the reason and the way out."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.support.tasks import PointModel
from turnout import losses
from turnout.aggregation import ClusterFedVARP, Private
from turnout.catalogue import catalogue
from turnout.coordinator import Cadence, Plan, State
from turnout.coordinator.compatibility import problems
from turnout.data import Federation
from turnout.data.federation import from_clients
from turnout.engine import Task, Vectorised
from turnout.local import SGD, Adagrad, Adam, Meta, Moreau, Yogi
from turnout.local.effort import AdaComm, ByTrace, Lognormal
from turnout.local.schedule import Constant, Exponential, Inverse, Step
from turnout.protocols import Population
from turnout.streams import Streams
from turnout.study.driver import Run, drive

LOCALS = {
    "sgd": SGD(lr=0.05, steps=2, schedule=Constant()),
    "sgd with everything": SGD(
        lr=0.05,
        batch_size=2,
        epochs=(1, 2),
        momentum=0.5,
        weight_decay=0.01,
        prox_strength=0.1,
        lr_decay=0.9,
        clip_norm=5.0,
        batches="replaced",
    ),
    "controls": SGD(lr=0.05, steps=(1, 3), control="average", schedule=Inverse()),
    "controls from gradients, with momentum": SGD(lr=0.05, steps=2, momentum=0.5, control="gradient"),
    "adacomm": SGD(lr=0.05, effort=AdaComm(start=3, every=1), schedule=Step(milestones=(2,))),
    "lognormal": SGD(lr=0.05, effort=Lognormal(mean=2), schedule=Exponential(decay=0.9)),
    "by trace": SGD(lr=0.05, effort=ByTrace(traces=((1, 2), (3,)))),
    "adagrad": Adagrad(lr=0.05, steps=(1, 3)),
    "adagrad, local": Adagrad(lr=0.05, steps=(1, 3), correction="local"),
    "adagrad, joint": Adagrad(lr=0.05, steps=(1, 3), correction="joint"),
    "adam": Adam(lr=0.05, batch_size=2, epochs=1, bias_correction=True),
    "adam, joint": Adam(lr=0.05, steps=2, effort=None, correction="joint", schedule=Inverse()),
    "meta": Meta(lr=0.05, steps=1, inner_lr=0.05),
    "moreau": Moreau(lr=0.05, steps=1, strength=2.0, inner_steps=2, inner_lr=0.05),
    "yogi, local": Yogi(lr=0.05, effort=AdaComm(start=3, every=1), correction="local"),
}
NEEDED: dict[type, dict[str, Any]] = {  # settings without a default
    ClusterFedVARP: {"num_clusters": 2},
    Private: {"clip_norm": 1.0, "noise_multiplier": 0.1, "cohort_size": 6},
}
ROUNDS = 3


def made(axis: str) -> dict[str, Any]:
    """Return every rule of an axis, by name."""
    return {name: rule(**NEEDED.get(rule, {})) for name, rule in catalogue(axis).items()}


AGGREGATIONS, SERVERS = made("aggregation"), made("server")


def reasons(local: Any, aggregation: str, server: str) -> Iterator[Any]:
    """Return why a combination makes no sense, as a reader of the papers would say it."""
    correction = getattr(local, "correction", None)
    if aggregation == "ensemble-transfer":
        yield "these clients train one model"  # it teaches a larger model what clients of other architectures know
    if (correction == "joint") != (aggregation == "joint"):
        yield "joint"  # D = Δ ⊘ C needs its scale put back, and only there
    if correction is not None and aggregation == "fednova":
        yield "preconditioner|already divides"  # steps do not measure adaptive work, and divided once is enough
    if isinstance(local, Meta | Moreau) and aggregation == "fednova":
        yield "no weighted sum of gradients"
    if correction == "local" and aggregation == "scheme-c":
        yield "already divided|already divides"
    if correction in ("local", "joint") and aggregation == "appeal":
        yield "do not lead to the client's own model"  # what is sent is not how far the client went alone
    beyond_rows = ("median", "trimmed-mean", "fedvarp", "cluster-fedvarp", "mifa", "joint")
    if server == "fedexp" and (aggregation in beyond_rows or correction == "joint"):
        yield "weighted sum|norm"  # its rate compares the rows with their weighted sum
    if aggregation == "private":  # nothing may get past the noise
        if getattr(local, "control", "none") != "none":
            yield "unclipped updates"
        if isinstance(local.effort, AdaComm):
            yield "without noise"
        if server == "fedexp":
            yield "unclipped update norms"


def federation() -> Federation:
    """Six clients with targets of their own, so that F_i = ‖x − y_i‖², and two samples at the server."""
    targets = [[1.0, 2.0], [3.0, -1.0], [2.0, 2.0], [-1.0, 4.0], [0.5, 1.0], [2.5, 0.0]]
    held = [torch.tensor([target] * size, dtype=torch.float64) for size, target in enumerate(targets, start=1)]
    server = torch.tensor([[1.0, 1.0], [1.5, 1.0]], dtype=torch.float64)
    nothing = [torch.zeros(len(y), 1, dtype=torch.float64) for y in (*held, server)]
    return from_clients(list(zip(nothing, held, strict=False)), server=(nothing[-1], server))


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(federation=federation(), module=PointModel(2), loss=losses.squared_error)


def plans(local: Any) -> Iterator[Any]:
    """Yield (aggregation, server, plan) of every combination with a solver."""
    for aggregation, server in itertools.product(AGGREGATIONS, SERVERS):
        yield (
            aggregation,
            server,
            Plan(
                local=local,
                rounds=ROUNDS,
                aggregation=AGGREGATIONS[aggregation],
                server=SERVERS[server],
                evaluate=Cadence(every=10**9),
            ),
        )


@pytest.mark.parametrize("name", LOCALS)
def test_contract_what_makes_no_sense_is_refused_with_the_reason(name: str) -> None:
    for aggregation, server, plan in plans(LOCALS[name]):
        expected, said = list(reasons(plan.local, aggregation, server)), [found.message for found in problems(plan)]
        assert bool(expected) == bool(said), (aggregation, server, said)
        assert all(re.search(r"\b(Set|Aggregate|Move|Leave)\b", text) for text in said)  # and the way out
        for word in expected:
            assert any(re.search(word, text) for text in said), (aggregation, server, word, said)


@pytest.mark.parametrize("name", LOCALS)
def test_contract_what_makes_sense_runs(name: str, task: Task) -> None:
    population = Population.of(task.federation.sizes, server_size=2)
    start = task.layout.flatten(task.module)
    records: list[Any]
    runs: list[Any]
    runs, records = [], []
    for _, _, plan in plans(LOCALS[name]):
        if not list(problems(plan)):
            state = State.start(start.clone(), population)
            runs.append(
                Run(index=len(runs), task=task, plan=plan, state=state, streams=Streams(0), population=population)
            )
    assert len(runs) >= len(SERVERS) - 1
    finals = drive(runs, Vectorised("cpu", block=10_000), records.extend)
    assert len(records) == len(runs) * (ROUNDS + 1)
    assert all(not record.rejected for _, record in records)
    for run, final in zip(runs, finals, strict=True):
        assert torch.isfinite(final.model).all(), run.plan
        assert not torch.equal(final.model, start), run.plan


def test_contract_every_rule_is_in_some_combination() -> None:
    assert {type(local) for local in LOCALS.values()} == set(catalogue("local").values())
    assert {type(local.schedule) for local in LOCALS.values()} == set(catalogue("schedule").values())
    efforts = {type(local.effort) for local in LOCALS.values()} - {type(None)}
    assert efforts == set(catalogue("effort").values())
