"""What a round's model is worth to simulated clients, for an availability rule that depends on it.

Every member measures the model on its training samples before it decides whether to take part. Both that and training
alone, once, before a client's first decision, are on the round's bill: the client has to have the model, and computes.

Where clients have hold-outs, the models that they trained alone are measured on them, once. A client prefers the better
of two models, the shared one and its own: `preferred accuracy` is the larger of their accuracies on its hold-out.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator import Plan
from turnout.coordinator.findings import Findings
from turnout.coordinator.orders import train_alone
from turnout.coordinator.probe_checks import fitting
from turnout.costs import Costs
from turnout.local.batches import samples_used
from turnout.protocols import Memory, View
from turnout.requests import EachEvaluated, Evaluated, EvaluateEach, Fit, Probe, Probed, Steps, Trained
from turnout.requirement import ALONE, Appeal, LossesAlone, Requirement, TrainAlone, is_served

ROWS_BYTES = 256 << 20  # of models trained alone that are in memory at once
SAVED: dict[str, Any] = {  # by client, with what a client has that was not measured
    "required": np.float64(0.0),
    "is_known": np.bool_(False),
    "unserved": np.int64(0),
    "alone loss": np.float64(np.nan),
    "alone accuracy": np.float64(np.nan),
}
ALONE_MEASURES = ("alone loss", "alone accuracy")


def losses_alone(request: TrainAlone, sizes: Ids, holdout_sizes: Ids | None) -> Steps[LossesAlone]:
    """Have clients train alone, and return the loss of each one's model on the samples it was trained on.

    A client whose training diverges has the model that it started from.
    """
    clients, local = request.clients, request.local
    losses, samples = np.zeros(len(clients)), 0
    on_holdouts = {metric: np.full(len(clients), np.nan) for metric in request.on_holdouts}
    block = max(1, ROWS_BYTES // max(1, request.model.numel() * request.model.element_size()))
    for begin in range(0, len(clients), block):
        part = slice(begin, begin + block)
        trained: Trained = yield _fit(request, part)
        models = request.model - cast(Tensor, trained.delta)
        probed: Probed = yield _probe(request, clients[part], models)
        losses[part], samples = cast(Floats, probed.loss), samples + probed.samples
        models[torch.from_numpy(~np.isfinite(losses[part]))] = request.model
        for metric, values in (yield from _on_holdouts(request, clients[part], models, holdout_sizes)).items():
            on_holdouts[metric][part] = values
    diverged = np.flatnonzero(~np.isfinite(losses))
    if len(diverged):
        probe = _probe(request, clients[diverged], None)
        first = fitting(probe, (yield probe), Findings())
        losses[diverged], samples = first.loss, samples + first.samples
    used = samples_used(sizes[clients], request.steps, local.batch_size, local.batches, local.cycle)
    gradients = int(used.sum())
    return LossesAlone(clients=clients, loss=losses, samples=samples, gradients=gradients, on_holdouts=on_holdouts)


def _on_holdouts(request: TrainAlone, clients: Ids, models: Tensor, sizes: Ids | None) -> Steps[dict[str, Floats]]:
    """Return the wanted metrics of each client's model on its hold-out, NaN where it has none."""
    values = {metric: np.full(len(clients), np.nan) for metric in request.on_holdouts}
    has_holdout = np.zeros(len(clients), dtype=bool) if sizes is None else sizes[clients] > 0
    if values and has_holdout.any():
        each: EachEvaluated = yield EvaluateEach(
            round=request.round,
            clients=clients[has_holdout],
            models=models[torch.from_numpy(has_holdout)],
            buffers=None,
            metrics=request.on_holdouts,
        )
        for metric, numbers in (("loss", each.loss), ("accuracy", each.accuracy)):
            if metric in values and numbers is not None:
                values[metric][has_holdout] = numbers
    return values


def _fit(request: TrainAlone, part: slice) -> Fit:
    clients = request.clients[part]
    return Fit(
        round=0,
        streams=request.streams,
        model=request.model,
        buffers=None,
        clients=clients,
        steps=request.steps[part],
        local=request.local,
        settings={name: values[part] for name, values in request.settings.items()},
        coefficients=None,
        buffer_weights=np.full(len(clients), 1.0 / len(clients)),
        purpose=ALONE,
    )


def _probe(request: TrainAlone, clients: Ids, models: Tensor | None) -> Probe:
    return Probe(
        round=request.round,
        streams=request.streams,
        model=request.model,
        buffers=None,
        clients=clients,
        what="loss",
        models=models,
    )


@dataclass(slots=True)
class Appeals:
    """ρ_k of the clients that are known, and for how many rounds the model has not served each."""

    by_client: dict[str, Any]
    costs: Costs = field(default_factory=Costs)  # of this round
    share: float | None = None  # of the members that this round's model serves; None: it was not measured

    @classmethod
    def of(cls, memory: Memory, num_clients: int) -> "Appeals":
        """Return what was saved."""
        return cls({name: memory.get(f"appeal {name}", np.full(num_clients, kind)) for name, kind in SAVED.items()})

    def saved(self) -> Memory:
        """Return what goes on to the next round, by the names under which it is saved."""
        return {f"appeal {name}": values for name, values in self.by_client.items()}

    def measure(self, plan: Plan, view: View, requirement: Requirement, start: Tensor) -> Steps[Appeal]:
        """Have the members measure the model; those that are new first find out what they require."""
        members, sizes = view.population.everyone, view.population.sizes
        required, is_known = (self.by_client[name] for name in ("required", "is_known"))
        if not requirement.is_alone:
            required = requirement.given(len(sizes))
        elif len(new := members[~is_known[members]]):
            request = replace(train_alone(plan, view, new, requirement, start), on_holdouts=plan.evaluate.may_measure)
            alone = yield from losses_alone(request, sizes, view.population.holdout_sizes)
            required, is_known = required.copy(), is_known.copy()
            required[new], is_known[new] = alone.loss, True
            self._keep(new, alone)
            self._bill(
                plan, view, len(new), Costs(probe_evaluations=alone.samples, gradient_evaluations=alone.gradients)
            )
        probe = Probe(round=view.round, streams=view.streams, model=view.model, buffers=view.buffers,
                      clients=members, what="loss")  # fmt: skip
        probed: Probed = fitting(probe, (yield probe), Findings()) if len(members) else Probed(clients=members)
        self._bill(plan, view, len(members), Costs(probe_evaluations=probed.samples))
        losses, served = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=bool)
        losses[members] = 0.0 if probed.loss is None else probed.loss
        served[members] = is_served(losses[members], required[members])
        unserved = np.zeros_like(self.by_client["unserved"])  # an arrival has not waited for anything
        unserved[members] = np.where(served[members], 0, self.by_client["unserved"][members] + 1)
        self.by_client |= {"required": required, "is_known": is_known, "unserved": unserved}
        self.share = float(served[members].mean()) if len(members) else None
        return Appeal(losses=losses, required=required, unserved_rounds=unserved)

    def _keep(self, clients: Ids, alone: LossesAlone) -> None:
        for metric, values in alone.on_holdouts.items():
            by_client = self.by_client[f"alone {metric}"].copy()
            by_client[clients] = values
            self.by_client[f"alone {metric}"] = by_client

    def preferred(self, shared: Evaluated) -> dict[str, Floats]:
        """Return measures of the models that clients trained alone, and of the better of that and the shared model."""
        known = {name: values for name, values in self.by_client.items() if name in ALONE_MEASURES}
        values = {name: each for name, each in known.items() if np.isfinite(each).any()}
        if shared.client_accuracy is not None and "alone accuracy" in values:
            values["preferred accuracy"] = np.maximum(shared.client_accuracy, values["alone accuracy"])
        return values

    def close(self) -> tuple[Costs, dict[str, float]]:
        """Return the round's bill and its metric, and begin the next round."""
        closed = self.costs, {} if self.share is None else {"appeal": self.share}
        self.costs, self.share = Costs(), None
        return closed

    def _bill(self, plan: Plan, view: View, num_models: int, computed: Costs) -> None:
        self.costs += Costs(bytes_down=num_models * plan.sent_bytes(view.model)) + computed
