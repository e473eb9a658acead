"""Requests that rules may make, and what they cost."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.controls import controls_for
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.training import on_time, planned
from turnout.local.batches import samples_used
from turnout.protocols import Population, View
from turnout.requests import Costs, Probe, Probed, Score, Scored, Steps, Train, Trained
from turnout.streams import SERVER

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asker:
    """Makes requests with the run's own local solver and model."""

    plan: Plan
    view: View
    state: State

    def steps(self, clients: Ids) -> Ids:
        """Return how many local steps each of these clients would get done this round; asks nobody."""
        return planned(self.plan, self.view, clients, np.ones_like(clients), None)[0].local_steps

    def rates(self, clients: Ids) -> Floats:
        """Return η_l of each of these clients in this round; asks nobody."""
        return self.plan.local.settings(clients, self.view)["lr"]

    def seconds(self, clients: Ids) -> Floats | None:
        """Return how long the work of this round would take each of these clients; None without a clock."""
        clock, model = self.plan.fleet.clock, self.view.model
        if clock is None:
            return None
        asked = self.plan.local.asked(clients, self.view)  # who will stop half-way, nobody knows beforehand
        return clock.seconds(clients, asked, model.numel() * model.element_size(), self.view)

    def train(self, clients: Ids, uploads: bool = True) -> Train:
        """Ask these clients to train from the round's model; without `uploads` not all of them send their rows."""
        facts, settings = planned(self.plan, self.view, clients, np.ones_like(clients), None)
        facts, timing = on_time(self.plan, self.view, facts, settings)
        here = facts.local_steps > 0
        share = facts.weights[here]
        return Train(
            round=self.view.round,
            streams=self.view.streams,
            model=self.view.model,
            buffers=self.view.buffers,
            clients=clients[here],
            steps=facts.local_steps[here],
            local=self.plan.local,
            settings={name: values[here] for name, values in settings.items()},
            coefficients=None,
            buffer_weights=share / max(share.sum(), 1e-300),
            controls=None if self.plan.local.control == "none" else controls_for(self.state, self.view),
            uploads=uploads,
            sent=len(clients),
            sim_seconds=0.0 if timing is None else timing.round_seconds,
        )

    def train_alone(self, client: int) -> Train:
        """Ask a client for the whole local work of a run's first round, at its rate, whatever the fleet allows.

        Neither a schedule nor an adaptive effort has begun, no work is cut short and no control pulls to the others.
        """
        one, local = np.array([client]), self.plan.local
        first = replace(self.view, round=1, restart=0, memory={})
        steps, clock = local.asked(one, first), self.plan.fleet.clock
        size = self.view.model.numel() * self.view.model.element_size()
        return Train(
            round=self.view.round,
            streams=self.view.streams,
            model=self.view.model,
            buffers=self.view.buffers,
            clients=one,
            steps=steps,
            local=local,
            settings=local.settings(one, first),
            coefficients=None,
            buffer_weights=np.ones(1),
            sent=1,
            sim_seconds=0.0 if clock is None else float(clock.seconds(one, steps, size, self.view)[0]),
        )

    def train_on_server(self) -> Train:
        """Ask for the same local procedure on the server's own samples; the answer has one row."""
        one = np.array([SERVER])
        view, size = self.view, self.view.population.server_size
        alone = Population.of(np.array([size]))
        there = replace(view, population=alone)
        steps = self.plan.local.asked(np.zeros(1, dtype=np.int64), there)
        return server_train(self.plan.local, view, one, steps)

    def losses(self, clients: Ids, batch_size: int | None = None) -> Probe:
        """Ask clients for their loss at the round's model."""
        return self._probe(clients, "loss", batch_size)

    def gradients(self, clients: Ids) -> Probe:
        """Ask clients for their full gradient at the round's model."""
        return self._probe(clients, "gradient", None)

    def score(self, models: Tensor, on: str = "server", client: int | None = None) -> Score:
        """Ask for the loss of each of these models on the server's samples or on one client's hold-out."""
        return Score(round=self.view.round, models=models, buffers=self.view.buffers, on=on, client=client)

    def _probe(self, clients: Ids, what: str, batch_size: int | None) -> Probe:
        view = self.view
        return Probe(
            round=view.round,
            streams=view.streams,
            model=view.model,
            buffers=view.buffers,
            clients=clients,
            what=what,
            batch_size=batch_size,
        )


def server_train(local: Any, view: View, one: Ids, steps: Ids) -> Train:
    """Return the request for a solver on the server's own samples."""
    return Train(
        round=view.round,
        streams=view.streams,
        model=view.model,
        buffers=view.buffers,
        clients=one,
        steps=steps,
        local=local,
        settings=local.settings(np.zeros(1, dtype=np.int64), view),
        coefficients=None,
        buffer_weights=np.ones(1),
        on_server=True,
    )


class Meter:
    """Counts what rules ask for besides the round's own training."""

    def __init__(self) -> None:
        self.down = self.up = self.samples = self.gradients = 0
        self.seconds = 0.0

    def watch(self, steps: Steps[T], sizes: Ids) -> Steps[T]:
        """Pass requests through, counting them."""
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                return cast(T, stop.value)
            answer = yield request
            self._count(request, answer, sizes)

    def _count(self, request: Any, answer: Any, sizes: Ids) -> None:
        if isinstance(request, Probe) and isinstance(answer, Probed):
            self.down += len(request.clients)
            self.up += len(request.clients) if request.what == "gradient" else 0
            self.samples += answer.samples
        elif isinstance(request, Score) and isinstance(answer, Scored):
            self.down += 0 if request.client is None else len(request.models)  # scored at a client, so sent to it
            self.samples += answer.samples
        elif isinstance(request, Train) and isinstance(answer, Trained) and not request.on_server:
            self.down += max(request.sent, len(request.clients))
            self.up += len(answer.clients) if request.uploads else 0
            self.seconds += request.sim_seconds
            local = request.local
            used = samples_used(sizes[request.clients], request.steps, local.batch_size, local.batches)
            self.gradients += int(used.sum())

    def costs(self, model: Tensor) -> Costs:
        """Return the bill: a model down per client asked, and a row up where one was sent."""
        size = model.numel() * model.element_size()
        return Costs(
            bytes_down=self.down * size,
            bytes_up=self.up * size,
            gradient_evaluations=self.gradients,
            probe_evaluations=self.samples,
            sim_seconds=self.seconds,
        )
