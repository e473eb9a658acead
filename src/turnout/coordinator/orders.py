"""What clients are asked to do: orders, made with the run's own local solver and model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.plan import Plan
from turnout.coordinator.widths import parts_for
from turnout.local import SGD
from turnout.local.batches import steps_per_epoch
from turnout.orders import Order, Weighing
from turnout.protocols import Population, View
from turnout.requirement import Requirement, TrainAlone
from turnout.rows import Facts
from turnout.streams import SERVER


def order_for(plan: Plan, view: View, clients: Ids, *, drawn: Mapping[str, Any] | None = None, **how: Any) -> Order:
    """Return the order of this round's local work for these clients, which are ascending.

    `drawn` is what the selection says of them, in Facts' words; `how` is what else the order asks for, in Order's.
    """
    steps, settings = plan.local.asked(clients, view), plan.local.settings(clients, view)
    facts = _facts(plan, view, clients, steps, settings, **(drawn or {}))
    rule: Any = None if plan.traits.aggregation.is_rowwise else plan.aggregation
    how |= {"parts": parts_for(plan, view, clients, steps)}
    return _order(view, plan.local, Weighing(rule, plan.local, settings, facts), clients, steps, **how)


def first_round_order(plan: Plan, view: View, client: int) -> Order:
    """Return the order of the whole local work of a run's first round, at its learning rate, for one client.

    Neither a schedule nor an adaptive number of steps has begun, and the fleet does not cut the work short.
    """
    one, first = np.array([client]), replace(view, round=1, restart=0, memory={})
    steps, settings = plan.local.asked(one, first), plan.local.settings(one, first)
    weighing = Weighing(None, plan.local, settings, _facts(plan, view, one, steps, settings))
    return _order(view, plan.local, weighing, one, steps, whole=True)


def train_alone(plan: Plan, view: View, clients: Ids, requirement: Requirement, start: Tensor) -> TrainAlone:
    """Return the request in which clients train alone for so many epochs, as in a run's first round."""
    local, first = plan.local, replace(view, round=1, restart=0, memory={})
    if requirement.lr is not None:
        local = SGD(lr=requirement.lr, batch_size=local.batch_size, batches=local.batches, epochs=requirement.epochs)
    batch_size = None if local.batches == "full" else local.batch_size
    return TrainAlone(
        round=view.round,
        streams=view.streams,
        model=start,
        clients=clients,
        steps=requirement.epochs * steps_per_epoch(view.population.sizes[clients], batch_size),
        local=local,
        settings=local.settings(clients, first),
    )


def server_order(local: Any, view: View) -> Order:
    """Return the order of a local solver on the server's own samples; the answer has one row."""
    one, first = np.array([SERVER]), np.zeros(1, dtype=np.int64)
    there = replace(view, population=Population.of(np.array([view.population.server_size])))
    steps, settings = local.asked(first, there), local.settings(first, view)
    facts = Facts(
        clients=one,
        weights=np.ones(1),
        num_examples=np.array([view.population.server_size]),
        asked_steps=steps,
        local_steps=steps,
        local_work=local.local_work(steps, settings),
        local_lr=settings["lr"],
        multiplicity=np.ones(1, dtype=np.int64),
        inclusion_prob=None,
        num_clients=1,
    )
    return _order(view, local, Weighing(None, local, settings, facts), one, steps, on_server=True, whole=True)


def _order(view: View, local: Any, weighing: Weighing, clients: Ids, steps: Ids, **how: Any) -> Order:
    return Order(
        round=view.round,
        streams=view.streams,
        model=view.model,
        buffers=view.buffers,
        clients=clients,
        steps=steps,
        local=local,
        weighing=weighing,
        **how,
    )


def _facts(
    plan: Plan,
    view: View,
    clients: Ids,
    steps: Ids,
    settings: Mapping[str, Floats],
    multiplicity: Ids | None = None,
    inclusion_prob: Floats | None = None,
) -> Facts:
    """Return what is known of these clients before they work, as if each did all its steps."""
    return Facts(
        clients=clients,
        weights=view.population.weights[clients],
        num_examples=view.population.sizes[clients],
        asked_steps=steps,
        local_steps=steps,
        local_work=plan.local.local_work(steps, settings),
        local_lr=settings["lr"],
        multiplicity=np.ones_like(clients) if multiplicity is None else multiplicity,
        inclusion_prob=inclusion_prob,
        num_clients=view.population.num_counted,
    )
