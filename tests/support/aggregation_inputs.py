"""Answers made up by hand, for rules that are called without a round around them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from turnout.array_types import Ids
from turnout.protocols import Combined, Population, View
from turnout.rows import Facts, Rows
from turnout.streams import Streams
from turnout.traits import AggregationTraits, traits_of


def facts(
    clients: Any,
    *,
    weights: ArrayLike | None = None,
    steps: Any = None,
    asked: ArrayLike | None = None,
    work: ArrayLike | None = None,
    times: ArrayLike | None = None,
    prob: ArrayLike | None = None,
    lr: ArrayLike = 0.1,
    total: int | None = None,
) -> Facts:
    """Facts of these clients; equal weights over `total` clients, one step and one draw each unless said."""
    clients = np.asarray(clients, dtype=np.int64)
    n, total = len(clients), total or int(clients.max(initial=0)) + 1
    steps = np.ones(n, dtype=np.int64) if steps is None else np.asarray(steps)
    return Facts(
        clients=clients,
        weights=np.full(n, 1 / total) if weights is None else np.asarray(weights, dtype=float),
        num_examples=np.ones(n, dtype=np.int64),
        asked_steps=steps if asked is None else np.asarray(asked),
        local_steps=steps,
        local_work=np.asarray(steps if work is None else work, dtype=float),
        local_lr=np.broadcast_to(np.asarray(lr, dtype=float), n).copy(),
        multiplicity=np.ones(n, dtype=np.int64) if times is None else np.asarray(times),
        inclusion_prob=None if prob is None else np.asarray(prob, dtype=float),
        num_clients=total,
    )


def view(
    sizes: Any,
    dim: int,
    *,
    round: int = 1,
    counted: Any = None,
    label_counts: Ids | None = None,
    seed: int = 0,
    budget: int = 1 << 30,
) -> View:
    """A round's view of clients with these sizes, at the model 1, 1, …"""
    sizes = np.asarray(sizes, dtype=np.int64)
    population = Population.of(sizes, label_counts)
    if counted is not None:
        counted = np.asarray(counted, dtype=bool)
        held = np.where(counted, sizes, 0)
        population = Population(
            sizes=sizes, weights=held / held.sum(), everyone=np.flatnonzero(counted), counted=counted
        )
    model = torch.ones(dim, dtype=torch.float64)
    return View(round=round, rounds=100, streams=Streams(seed), population=population, model=model, table_budget=budget)


def combined(
    rule: Any,
    given: Facts,
    delta: Any,
    here: View,
    memory: dict[str, Any] | None = None,
    extra: Tensor | None = None,
) -> Combined:
    """What a rule, linear or not, makes of these changes."""
    delta = torch.as_tensor(np.asarray(delta, dtype=float))
    if delta.dim() == 1:
        delta = delta[:, None]
    if traits_of(AggregationTraits, rule).is_rowwise:
        result: Combined = rule.combine(Rows(given, delta, extra), memory or {}, here, None)
        return result
    coefficients = rule.coefficients(given)
    return Combined(direction=torch.as_tensor(coefficients) @ delta, coefficients=coefficients, memory=memory or {})
