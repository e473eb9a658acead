"""A filter in front of any selection rule and any algorithm: an open one changes nothing, a real one is obeyed."""

from collections.abc import Generator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.filtering_asking import AcceptAll
from tests.support.runs import run
from tests.support.selection_rules import RULES
from tests.support.tasks import blob_task
from turnout.aggregation import MIFA, FedAvg, FedNova, FedVARP, FLTrust, Median
from turnout.array_types import Ids
from turnout.catalogue import catalogue
from turnout.coordinator import Cadence, Plan
from turnout.coordinator.asking import Asker
from turnout.coordinator.generators import settle
from turnout.engine import Sequential, Task
from turnout.engine.task import Question
from turnout.filtering import DataSize, Everyone, Greedy, MinimumSteps, UpdateNorm
from turnout.fleet import Bernoulli, Deadline, Fleet, Lognormal
from turnout.local import SGD
from turnout.protocols import View
from turnout.requests import Answer, Fit
from turnout.selection import Optimal
from turnout.server import FedExP

OPEN = {
    "everyone": Everyone(),
    "data-size": DataSize(),
    "minimum-steps": MinimumSteps(),
    "update-norm": UpdateNorm(factor=1e9),
    "greedy": AcceptAll(every=2),
}
REAL: dict[str, Any] = {
    "data-size": DataSize(least=8),
    "minimum-steps": MinimumSteps(least=2),
    "update-norm": UpdateNorm(factor=1.0),
    "deterministic": Greedy(every=2),
    "randomised": Greedy(mode="randomised", every=2, most=4),
}
PLAIN = SGD(lr=0.1, batch_size=4, epochs=1)
ALGORITHMS: dict[str, Any] = {
    "FedAvg": {},
    "FedProx": {"local": replace(PLAIN, prox_strength=0.5)},
    "FedNova": {"aggregation": FedNova()},
    "FedVARP": {"aggregation": FedVARP()},
    "MIFA": {"aggregation": MIFA()},
    "SCAFFOLD": {"local": replace(PLAIN, control="average")},
    "median": {"aggregation": Median()},
    "FLTrust": {"aggregation": FLTrust()},
    "FedExP": {"server": FedExP()},
}


class Watched(Sequential):
    """The real engine, with a note of who trained in which round."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: list[Any] = []

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        for _, request in questions:
            if isinstance(request, Fit) and not request.on_server:
                self.trained += [(request.round, client) for client in request.clients.tolist()]
        return super().answer(questions)


def task_of() -> Task:
    task = blob_task(9)
    return replace(task, federation=replace(task.federation, server=task.federation.test))


def plan_of(rule: str, algorithm: str = "FedAvg") -> Plan:
    """Return a plan of this rule and algorithm, where most clients are up and some run out of time."""
    clock = Deadline(seconds_per_step=Lognormal(median=1.0, sigma=0.5), deadline_seconds=5.0)
    fleet = Fleet(availability=Bernoulli(prob=0.8), clock=clock)
    plan = Plan(local=PLAIN, rounds=5, fleet=fleet, selection=RULES[rule], evaluate=Cadence(every=10**9))
    weighting = "ht" if isinstance(RULES[rule], Optimal) else "mean"
    return replace(plan, **{"aggregation": FedAvg(weighting=weighting), **ALGORITHMS[algorithm]})  # type: ignore[arg-type]


PAIRS = [(rule, "FedAvg") for rule in RULES] + [("uniform", name) for name in ALGORITHMS if name != "FedAvg"]
PAIRS += [(rule, name) for rule in ("pow-d", "divfl", "oort") for name in ("FedNova", "SCAFFOLD", "FedVARP")]
every_pair = pytest.mark.parametrize(("rule", "algorithm"), PAIRS)


def test_contract_every_filter_of_the_catalogue_is_here() -> None:
    assert {type(rule) for rule in (*OPEN.values(), *REAL.values())} - {AcceptAll} == set(
        catalogue("filtering").values()
    )


@every_pair
def test_identity_an_open_filter_is_the_run_without_one(rule: str, algorithm: str) -> None:
    plan = plan_of(rule, algorithm)
    base, before = run(task_of(), plan)
    assert sum(len(record.answered) for record in before) > 0
    for name, filtering in OPEN.items():
        same, after = run(task_of(), replace(plan, filtering=filtering))  # type: ignore[arg-type]
        assert [r.asked.tolist() for r in after] == [r.asked.tolist() for r in before], name
        assert [r.answered.tolist() for r in after] == [r.answered.tolist() for r in before], name
        assert torch.allclose(same.model, base.model, rtol=0, atol=1e-12), name


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("rule", RULES)
def test_contract_only_those_a_filter_kept_are_asked(rule: str, name: str) -> None:
    engine, kept_in = Watched(), []

    class Noted(type(REAL[name])):  # type: ignore[misc]
        """The filter, with a note of whom it kept."""

        def keep(self, pool: Ids, view: View, ask: Asker) -> Generator[Any, Any, Any]:
            kept = yield from settle(super().keep(pool, view, ask))
            kept_in.append((pool, kept.clients))
            return kept

    settings = {field.name: getattr(REAL[name], field.name) for field in fields(REAL[name])}
    final, records = run(task_of(), replace(plan_of(rule), filtering=Noted(**settings)), engine=engine)
    assert len(kept_in) == len(records) - 1
    for record, (pool, kept) in zip(records[1:], kept_in, strict=True):
        assert np.array_equal(pool, record.up)
        assert np.isin(kept, pool).all()
        assert np.isin(record.asked, kept).all()
        if "filter_considered" in record.metrics:
            assert record.metrics["filter_kept"] == len(kept)
    assert any(len(kept) < len(pool) for pool, kept in kept_in), "the filter never left anybody out"
    assert torch.isfinite(final.model).all()


@pytest.mark.parametrize("name", ["update-norm", "deterministic", "randomised"])
@pytest.mark.parametrize("rule", RULES)
def test_contract_nobody_trains_twice_in_a_round(rule: str, name: str) -> None:
    engine = Watched()
    run(task_of(), replace(plan_of(rule), filtering=REAL[name]), engine=engine)
    assert len(engine.trained) == len(set(engine.trained))
