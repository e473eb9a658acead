"""A round in which no client gets any work done, for rules that train clients before the round."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.runs import run
from tests.support.tasks import blob_task, train_of
from turnout.aggregation import FedAvg
from turnout.array_types import Ids
from turnout.coordinator import Plan
from turnout.data.federation import from_clients
from turnout.engine import Engine, Task
from turnout.filtering import Greedy, UpdateNorm
from turnout.fleet import Fleet
from turnout.local import SGD
from turnout.protocols import View
from turnout.requests import Fit, Probe
from turnout.selection import Optimal

TRAINING_FIRST: dict[str, Any] = {
    "update-norm": {"filtering": UpdateNorm()},
    "greedy": {"filtering": Greedy(every=100)},
    "optimal": {"selection": Optimal(cohort_size=2, pool_size=4), "aggregation": FedAvg(weighting="ht")},
}


@dataclass(frozen=True)
class IdleIn:
    """Nobody does any work in one round; in the others everyone does all of it."""

    round: int

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        return np.zeros_like(asked) if view.round == self.round else asked


def task_with_server_samples() -> Task:
    plain = blob_task(5)
    clients = [
        (train_of(plain.federation).x[a:b], train_of(plain.federation).y[a:b]) for a, b in ((0, 9), (9, 18), (18, 27))
    ]
    return Task(
        federation=from_clients(clients, server=clients[0], num_classes=3), module=plain.module, loss=plain.loss
    )


@pytest.mark.parametrize("idle", [1, 2])
@pytest.mark.parametrize("rule", TRAINING_FIRST)
def test_contract_a_round_without_work_moves_nothing_and_the_next_goes_on(
    rule: str, idle: int, any_engine: Callable[[], Engine]
) -> None:
    asked: list[Any] = []
    engine = any_engine()
    answer = engine.answer
    engine.answer = lambda questions: asked.extend(request for _, request in questions) or answer(questions)  # type: ignore[func-returns-value, method-assign]
    plan = Plan(local=SGD(lr=0.1, steps=2), rounds=3, fleet=Fleet(work=IdleIn(idle)), **TRAINING_FIRST[rule])
    final, records = run(task_with_server_samples(), plan, engine=engine)
    answered = [len(record.answered) for record in records]
    assert answered[idle] == 0
    assert all(count > 0 for round, count in enumerate(answered) if round not in (0, idle))
    assert torch.isfinite(final.model).all()
    assert all(len(request.clients) for request in asked if isinstance(request, Fit | Probe))
