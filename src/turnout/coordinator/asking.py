"""Requests that rules may make, and what they cost."""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.client_state import shared_of
from turnout.coordinator.orders import first_round_order, order_for, server_order, train_alone
from turnout.coordinator.plan import Plan, State
from turnout.costs import Costs
from turnout.distillation import Distil, Distilled, Predict
from turnout.drift import Blocks
from turnout.errors import ConfigError
from turnout.generators import relay
from turnout.local.batches import samples_used
from turnout.orders import Order
from turnout.protocols import View
from turnout.requests import Expect, Probe, Probed, Reply, Score, Scored, Steps, Train, Trained
from turnout.requirement import LossesAlone, Requirement, TrainAlone

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asker:
    """Makes requests with the run's own local solver and model."""

    plan: Plan
    view: View
    state: State
    order: Order | None = None  # of the clients of one model, which are asked about the samples that they train it on

    def learning_rates(self, clients: Ids) -> Floats:
        """Return η_l of each of these clients in this round; asks nobody."""
        return self.plan.local.settings(clients, self.view)["lr"]

    def expected(self, clients: Ids) -> Expect:
        """Ask the world how far these clients would get with this round's work, and how long it would take them."""
        return Expect(
            round=self.view.round,
            clients=clients,
            steps=self.plan.local.asked(clients, self.view),
            local=self.plan.local,
            model=self.view.model,
        )

    def train(self, clients: Ids, uploads: bool = True) -> Train:
        """Ask these clients to train from the round's model; without `uploads` not all of them send their rows."""
        shared = shared_of(self.plan, self.state, self._one_model())
        return Train(order=order_for(self.plan, self.view, clients, uploads=uploads, shared=shared))

    def train_alone(self, client: int) -> Train:
        """Ask a client for the whole local work of a run's first round, at its rate, whatever the fleet allows."""
        return Train(order=first_round_order(self.plan, self.view, client))

    def train_on_server(self) -> Train:
        """Ask for the same local procedure on the server's own samples; the answer has one row."""
        return Train(order=server_order(self.plan.local, self.view))

    def losses(self, clients: Ids, batch_size: int | None = None, model: Tensor | None = None) -> Probe:
        """Ask clients for their loss at a model; None is the round's model."""
        return self._probe(clients, "loss", batch_size, model)

    def gradients(self, clients: Ids) -> Probe:
        """Ask clients for their full gradient at the round's model."""
        return self._probe(clients, "gradient", None)

    def losses_alone(self, clients: Ids, requirement: Requirement, start: Tensor) -> TrainAlone:
        """Ask clients to train a model alone from `start`, and for its loss on the samples it was trained on."""
        return train_alone(self.plan, self.view, clients, requirement, start)

    def score(self, models: Tensor, on: str = "server", client: int | None = None) -> Score:
        """Ask for the loss of each of these models on the server's samples or on one client's hold-out."""
        return Score(round=self.view.round, models=models, buffers=self.view.buffers, on=on, client=client)

    def _one_model(self) -> Tensor:
        """Return the round's model; raise if there are several, for a rule must then say which one it means."""
        if self.state.models is not None and len(self.state.models) > 1:
            raise ConfigError(
                f"A rule of this study asks clients about the round's model, and {type(self.plan.assignment).__name__} "
                f"has {len(self.state.models)} models. Leave assignment out, or change that rule.",
                setting="assignment",
            )
        return self.view.model

    def _probe(self, clients: Ids, what: str, batch_size: int | None, model: Tensor | None = None) -> Probe:
        view = self.view
        return Probe(
            round=view.round,
            streams=view.streams,
            model=self._one_model() if model is None else model,
            buffers=view.buffers,
            clients=clients,
            what=what,
            batch_size=batch_size,
            blocks=self._blocks(clients),
        )

    def _blocks(self, clients: Ids) -> Blocks | None:
        """Return the time steps whose samples these clients train on; None: all."""
        if self.order is None or self.order.blocks is None:
            return None
        blocks: Blocks = self.order.blocks[np.searchsorted(self.order.clients, clients)]
        return blocks


class Meter:
    """Counts what rules ask for besides the round's own training."""

    def __init__(self) -> None:
        self.down = self.up = self.samples = self.gradients = 0
        self.seconds = 0.0
        self.has_counted = False

    def watch(self, steps: Steps[T], sizes: Ids) -> Steps[T]:
        """Pass requests through, counting them."""

        def reply(request: Any) -> Reply:
            answer = yield request
            self.has_counted = True
            self._count(request, answer, sizes)
            return answer

        return (yield from relay(steps, reply))

    def _count(self, request: Any, answer: Any, sizes: Ids) -> None:
        if isinstance(request, Probe) and isinstance(answer, Probed):
            self.down += len(request.clients)
            self.up += len(request.clients) if request.what == "gradient" else 0
            self.samples += answer.samples
        elif isinstance(request, TrainAlone) and isinstance(answer, LossesAlone):
            self.down += len(request.clients)  # the model to start from
            self.samples += answer.samples
            self.gradients += answer.gradients
        elif isinstance(request, Predict):  # at the server, which has the models
            self.samples += len(request.models) * len(request.samples)
        elif isinstance(request, Distil) and isinstance(answer, Distilled):
            self.gradients += answer.gradients
        elif isinstance(request, Score) and isinstance(answer, Scored):
            self.down += 0 if request.client is None else len(request.models)  # scored at a client, so sent to it
            self.samples += answer.samples
        elif isinstance(request, Train) and isinstance(answer, Trained) and not request.order.on_server:
            self.down += len(request.clients)
            self.up += len(answer.clients) if request.order.uploads else 0
            self.seconds += answer.seconds
            local = request.order.local
            used = samples_used(sizes[answer.clients], answer.steps, local.batch_size, local.batches, local.cycle)
            self.gradients += int(used.sum())

    def costs(self, size: int) -> Costs:
        """Return the bill: a model of so many bytes down per client asked, and a row up where one was sent."""
        return Costs(
            bytes_down=self.down * size,
            bytes_up=self.up * size,
            gradient_evaluations=self.gradients,
            probe_evaluations=self.samples,
            sim_seconds=self.seconds,
        )


def nothing_probed(request: Probe) -> Probed:
    """Return the answer to a probe that names no clients."""
    is_loss, rows = request.what == "loss", request.model.new_zeros(0, request.model.numel())
    return Probed(clients=request.clients, loss=np.zeros(0) if is_loss else None, gradient=None if is_loss else rows)
