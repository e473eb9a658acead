"""Rows by hand, and a rule asked to combine them; what it asks for in turn is answered by hand too."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tests.support.tasks import quadratic_task, train_of
from turnout.coordinator.generators import settle
from turnout.data.federation import from_clients
from turnout.engine import Task
from turnout.protocols import Combined, Population, View
from turnout.requests import Probed, Trained
from turnout.requirement import LossesAlone, Requirement
from turnout.rows import Facts, Rows
from turnout.streams import SERVER, Streams
from turnout.traits import AggregationTraits, traits_of


def rows_of(
    delta: Any,
    *,
    sizes: ArrayLike | None = None,
    multiplicity: ArrayLike | None = None,
    with_extra: bool = True,
) -> Rows:
    """Return rows of clients 0 … n−1, all of whom took part and did two steps; the extra rows are ones."""
    matrix = torch.from_numpy(np.array(delta, dtype=float))
    count = len(matrix)
    examples = np.ones(count, dtype=np.int64) if sizes is None else np.asarray(sizes)
    steps = np.full(count, 2)
    facts = Facts(
        clients=np.arange(count),
        weights=examples / examples.sum(),
        num_examples=examples,
        asked_steps=steps,
        local_steps=steps,
        local_work=steps.astype(float),
        local_lr=np.full(count, 0.1),
        multiplicity=np.ones(count, dtype=np.int64) if multiplicity is None else np.asarray(multiplicity),
        inclusion_prob=np.ones(count),
        num_clients=count,
    )
    return Rows(facts, matrix, torch.ones_like(matrix) if with_extra else None, np.ones(count))


def view_of(rows: Rows, *, round: int = 1, server_size: int = 5) -> View:
    """Return what a rule sees when these rows are all the clients there are."""
    facts = rows.facts
    labels = np.stack([facts.num_examples, facts.num_examples], axis=1)
    population = Population.of(facts.num_examples, label_counts=labels, server_size=server_size)
    model = torch.zeros(rows.delta.shape[1], dtype=rows.delta.dtype)
    return View(round=round, rounds=3, streams=Streams(0), population=population, model=model)


class ByHand:
    """Makes the requests of an aggregation: the server's own step, losses, and losses of models trained alone."""

    def train_on_server(self) -> tuple[str, Any]:
        """Stand in for the request."""
        return "train on server", None

    def losses(self, clients: Any) -> tuple[str, Any]:
        """Stand in for the request."""
        return "losses", clients

    def losses_alone(self, clients: Any, requirement: Requirement, start: Tensor) -> tuple[str, Any]:
        """Stand in for the request."""
        assert requirement.is_alone
        return "alone", clients


def combined(
    rule: Any, rows: Rows, memory: Any = None, *, root: Any = None, losses: Any = 1.0, alone: Any = 1.0, **view: Any
) -> Combined:
    """Return what the coordinator would make of these rows."""
    if not traits_of(AggregationTraits, rule).is_rowwise:
        coefficients = rule.coefficients(rows.facts)
        return Combined(direction=torch.from_numpy(coefficients) @ rows.delta, coefficients=coefficients)
    steps: Any = settle(rule.combine(rows, {} if memory is None else memory, view_of(rows, **view), ByHand()))
    answer: Any = None
    while True:
        try:
            what, clients = steps.send(answer)
        except StopIteration as stop:
            result: Combined = stop.value
            return result
        if what in ("losses", "alone"):
            by_client = np.broadcast_to(np.asarray(losses if what == "losses" else alone, dtype=float), len(rows.delta))
            loss = by_client[clients]
            answer = Probed(clients=clients, loss=loss)
            if what == "alone":
                answer = LossesAlone(clients=clients, loss=loss, samples=0, gradients=0)
            continue
        assert what == "train on server"
        own = rows.delta.mean(0) if root is None else torch.as_tensor(root, dtype=rows.delta.dtype)
        answer = Trained(
            clients=np.array([SERVER]),
            steps=np.array([2]),
            loss=np.ones(1),
            finite=np.array([bool(torch.isfinite(own).all())]),
            delta=own[None],
        )


def direction(rule: Any, delta: Any, **more: Any) -> Tensor:
    """Return the direction of these rows."""
    known = {key: more.pop(key) for key in ("sizes", "multiplicity") if key in more}
    return combined(rule, rows_of(delta, **known), **more).direction


def rooted_task(minima: Sequence[Sequence[float]], root: Sequence[float], sizes: Sequence[int] | None = None) -> Task:
    """Return quadratics of curvature one with these minima, and one more at the server."""
    task = quadratic_task([1.0] * len(minima), minima, sizes or [1] * len(minima))
    target = torch.tensor([[1.0, *root]], dtype=torch.float64)
    train = train_of(task.federation)
    clients = [train.of(i) for i in range(len(minima))]
    federation = from_clients(clients, server=(torch.zeros(1, 1, dtype=torch.float64), target))
    return replace(task, federation=federation)
