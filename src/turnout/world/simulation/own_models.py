"""Simulated clients with models of their own: a personal rule trains them, and they are evaluated."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator import Plan
from turnout.coordinator.generators import settle
from turnout.errors import ConfigError
from turnout.learned import Learned
from turnout.personal.at_clients import AtClients, Personal
from turnout.protocols import Local, View
from turnout.requests import EachEvaluated, Evaluate, EvaluateEach, Fit, Steps
from turnout.world.simulation.client_store import ClientStore

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
        return (yield from rule.train(self._at_clients(fit.clients, fit, (fit.local, fit.settings)), fit))

    def evaluate(self, rule: Personal, request: Evaluate) -> Steps[dict[str, Floats]]:
        """Return the loss and the accuracy of each kind of model on the hold-out of its client, by client id."""
        values: dict[str, Floats] = {}
        sizes = np.zeros(0, dtype=np.int64) if self.holdout_sizes is None else self.holdout_sizes
        holders = np.flatnonzero(sizes > 0)
        block = max(1, ROWS_BYTES // max(1, request.model.numel() * request.model.element_size()))
        for begin in range(0, len(holders), block):
            clients = holders[begin : begin + block]
            settings = self.plan.local.settings(clients, self.view)
            here = self._at_clients(clients, request, (self.plan.local, settings))
            models: Mapping[str, Tensor] = yield from settle(rule.models(here))
            for kind, rows in models.items():
                each: EachEvaluated = yield EvaluateEach(
                    round=request.round, clients=clients, models=rows, buffers=request.buffers, metrics=request.metrics
                )
                for metric, numbers in (("loss", each.loss), ("accuracy", each.accuracy)):
                    if numbers is not None:
                        values.setdefault(f"{kind} {metric}", np.full(len(sizes), np.nan))[clients] = numbers
        return values

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
            tables=self.store.own_table,
            room=self.store.room,
        )
