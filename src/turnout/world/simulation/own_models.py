"""Simulated clients with models of their own: a personal rule trains them, and they are evaluated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.client_models import ClientModels
from turnout.coordinator import Plan
from turnout.coordinator.generators import settle
from turnout.coordinator.widths import members_for
from turnout.errors import ConfigError
from turnout.learned import Learned, ModelRows
from turnout.metrics import EVALUATED, means_of
from turnout.personal.at_clients import AtClients, Personal, Used
from turnout.protocols import Local, View
from turnout.requests import EachEvaluated, Evaluate, Evaluated, EvaluateEach, Fit, Steps
from turnout.submodels import Parts
from turnout.world.simulation.by_member import ask_members, by_member
from turnout.world.simulation.client_store import ClientStore
from turnout.world.simulation.model_collector import ModelCollector

ROWS_BYTES = 256 << 20  # of clients' own models that are evaluated at once


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModels:
    """The models that clients keep, in one round."""

    plan: Plan
    view: View
    store: ClientStore
    holdout_sizes: Ids | None

    def train(self, rule: Personal, fit: Fit) -> Steps[Learned]:
        """Do the whole local work of the clients of a request."""
        here = self._at_clients(fit.clients, fit, (fit.local, fit.settings))
        return (yield from by_member(rule.train(here, fit), self._members(fit.clients), here.layout))

    def evaluate(self, rule: Personal, request: Evaluate) -> Steps[tuple[dict[str, Floats], ClientModels | None]]:
        """Return what each kind of model measures on its client's hold-out, by client id, and the last models.

        After the last round the models of all clients are collected, with a hold-out or without.
        """
        count = len(self.view.population.sizes)
        has_holdout = np.zeros(count, dtype=bool) if self.holdout_sizes is None else self.holdout_sizes > 0
        collector = self._collector(request, count) if request.round == self.plan.rounds else None
        values: dict[str, Floats] = {}
        for clients in _blocks(np.flatnonzero(has_holdout), request.model):
            models = yield from self._models(rule, request, clients)
            if collector is not None:
                collector.add(clients, models)
            for kind, rows in models.items():
                each = yield from self._measured_each(request, clients, rows)
                for metric, numbers in (("loss", each.loss), ("accuracy", each.accuracy)):
                    if numbers is not None:
                        values.setdefault(f"{kind} {metric}", np.full(count, np.nan))[clients] = numbers
        if collector is None:
            return values, None
        for clients in _blocks(np.flatnonzero(~has_holdout), request.model):
            if not collector.too_large:
                collector.add(clients, (yield from self._models(rule, request, clients)))
        members = self._members(np.arange(count))
        architecture = None if members is None else members.which
        return values, replace(collector.collected(self.store.has_kept()), architecture=architecture)

    def _measured_each(self, request: Evaluate, clients: Ids, rows: ModelRows) -> Steps[EachEvaluated]:
        """Return what these clients' models measure, each on its client's hold-out."""
        assert self.plan.layout is not None
        measure = EvaluateEach(
            round=request.round,
            clients=clients,
            models=rows.parameters,
            buffers=request.buffers,
            own_buffers=rows.buffers,
            metrics=request.metrics,
        )
        each: EachEvaluated = yield from ask_members(measure, self._members(clients), self.plan.layout)
        return each

    def _members(self, clients: Ids) -> Parts | None:
        """Return the architecture of each of these clients; None: all have the same."""
        return members_for(self.plan, self.view, clients)

    def _models(self, rule: Personal, request: Evaluate, clients: Ids) -> Steps[dict[str, ModelRows]]:
        """Return the models that these clients use now, by kind."""
        settings = self.plan.local.settings(clients, self.view)
        here = self._at_clients(clients, request, (self.plan.local, settings))
        models: Used = yield from settle(rule.models(here))
        return {
            kind: rows if isinstance(rows, ModelRows) else ModelRows(parameters=rows) for kind, rows in models.items()
        }

    def _collector(self, request: Evaluate, count: int) -> ModelCollector:
        assert self.plan.layout is not None
        return ModelCollector(
            layout=self.plan.layout,
            model=request.model,
            buffers=request.buffers,
            num_clients=count,
            limit=self.plan.memory.own_models_bytes,
        )

    def measured(self, rule: Personal | None, request: Evaluate) -> Steps[Evaluated]:
        """Return the metrics of a study without a shared model: the means over clients of their own models'."""
        assert rule is not None
        values, used = yield from self.evaluate(rule, request)
        means = means_of(values)
        shared = {name: means[f"personal_{name}"] for name in EVALUATED if f"personal_{name}" in means}
        if not request.per_client:
            return Evaluated(metrics=shared)
        accuracy, loss = values.get("personal accuracy"), values.get("personal loss")
        own: dict[str, Any] = {
            "client_accuracy": accuracy,
            "client_loss": loss,
            "personal": values,
            "client_models": used,
        }
        return Evaluated(metrics=shared | means, **own)

    def _at_clients(self, clients: Ids, request: Fit | Evaluate, how: tuple[Local, Mapping[str, Floats]]) -> AtClients:
        if self.plan.layout is None or self.store.first_model is None:
            raise ConfigError("A plan with a personal rule needs the model's layout. Pass layout=task.layout to Plan.")
        return AtClients(
            round=request.round,
            streams=self.view.streams,
            model=request.model,
            buffers=request.buffers,
            clients=clients,
            sizes=self.view.population.sizes[clients],
            local=how[0],
            settings=how[1],
            layout=self.plan.layout,
            first_model=self.store.first_model,
            first_buffers=self.store.first_buffers,
            tables=self.store.own_table,
            public_size=self.view.population.public_size,
            room=self.store.room,
        )


def _blocks(clients: Ids, model: Tensor) -> Iterator[Ids]:
    """Yield clients in blocks whose models fit in memory."""
    block = max(1, ROWS_BYTES // max(1, model.numel() * model.element_size()))
    return (clients[begin : begin + block] for begin in range(0, len(clients), block))
