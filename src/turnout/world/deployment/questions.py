"""Questions to devices besides training: what they remember, losses, gradients, and how a model does on hold-outs.

A device that does not answer, or whose own configuration does not allow the answer, is noted and left out.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.protocols import Population
from turnout.requests import Evaluate, Evaluated, Probe, Probed, Recall, Recalled, Score, Scored, Steps
from turnout.rows import is_finite
from turnout.world.deployment.limits import Limits
from turnout.world.deployment.mailbox import Mailbox
from turnout.world.deployment.parcel import BadParcelError, Parcel, as_array


def model_arrays(model: Tensor, buffers: Tensor | None) -> dict[str, Any]:
    """Return a model as the arrays of a parcel."""
    return {"model": as_array(model)} | ({} if buffers is None else {"buffers": as_array(buffers)})


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks devices, and makes answers of what they say."""

    mailbox: Mailbox
    limits: Limits
    population: Population
    run: str
    has_test: bool  # whether the server has a test set of its own

    def recall(self, request: Recall, kept_round: Ids) -> Recalled:
        """Ask devices for what they remember; None unless all that remember something answer."""
        holders = [int(client) for client in np.flatnonzero((kept_round > 0) & (request.weights > 0))]
        if not holders:
            return Recalled(total=None)
        parcels = {
            client: Parcel("recall", {"run": self.run, "kept_round": int(kept_round[client])}) for client in holders
        }
        found = self.mailbox.ask(parcels, self.limits.round_seconds, request.round)
        if set(found) != set(holders):
            self.mailbox.note("the mean of what clients remember stays as it was: some did not answer")
            return Recalled(total=None)
        return Recalled(total=self._weighted(found, request.weights))

    def _weighted(self, found: dict[int, Parcel], weights: Floats) -> Tensor | None:
        """Return Σ_i w_i row_i; None if one cannot be read."""
        try:
            rows = [(float(weights[client]), parcel.arrays["row"]) for client, parcel in found.items()]
            total = sum(weight * torch.from_numpy(row.copy()) for weight, row in rows)
        except (KeyError, RuntimeError, TypeError):
            return None
        return total if isinstance(total, Tensor) and is_finite(total) else None

    def probe(self, request: Probe) -> Probed:
        """Ask clients for a loss or a gradient; NaN where none came."""
        values = {"round": request.round, "seed": request.streams.seed, "what": request.what}
        values["batch_size"] = request.batch_size or 0
        arrays, asked = model_arrays(request.model, request.buffers), request.clients.tolist()
        parcels = {client: Parcel("probe", {**values, "client": client}, arrays) for client in asked}
        found = self.mailbox.ask(parcels, self.limits.round_seconds, request.round)
        losses, rows = np.full(len(request.clients), np.nan), []
        for at, client in enumerate(request.clients.tolist()):
            row = torch.full_like(request.model, torch.nan)
            try:
                if client in found and request.what == "loss":
                    losses[at] = found[client].number("loss")
                elif client in found:
                    row = found[client].vector("gradient", request.model)
            except BadParcelError as error:
                self.mailbox.note(f"client {client}: {error}")
            rows += [row] if request.what == "gradient" else []
        samples = int(self.population.sizes[list(found)].sum()) if found else 0
        if request.what == "loss":
            return Probed(clients=request.clients, loss=losses, samples=samples)
        return Probed(clients=request.clients, gradient=torch.stack(rows), samples=samples)

    def score(self, request: Score) -> Steps[Scored]:
        """Have models scored by the server's engine, or by one device on its hold-out."""
        if request.on == "server" or request.client is None:
            scored: Scored = yield request
            return scored
        arrays = {"models": as_array(request.models)}
        arrays |= {} if request.buffers is None else {"buffers": as_array(request.buffers)}
        parcel = Parcel("score", {"round": request.round}, arrays)
        found = self.mailbox.ask({request.client: parcel}, self.limits.round_seconds, request.round)
        losses = np.full(len(request.models), np.nan)
        for answer in found.values():
            loss = answer.arrays.get("loss")
            losses = loss.copy() if loss is not None and loss.shape == losses.shape else losses
        return Scored(loss=losses)

    def evaluate(self, request: Evaluate) -> Steps[Evaluated]:
        """Measure a model on the server's test set; without one, and per client, on the devices' hold-outs."""
        measured = Evaluated(metrics={})
        if self.has_test:
            measured = yield replace(request, per_client=False, clients=None)
        held = [device for device in self.mailbox.connected() if self._is_measured(device)]
        if not held or (self.has_test and not request.per_client):
            return measured
        values = {"round": request.round, "metrics": list(request.metrics)}
        parcel = Parcel("evaluate", values, model_arrays(request.model, request.buffers))
        found = self.mailbox.ask(dict.fromkeys(held, parcel), self.limits.round_seconds, request.round)
        by_client = {name: np.full(self.population.num_clients, np.nan) for name in ("loss", "accuracy")}
        for client, answer in found.items():
            metrics = answer.values.get("metrics")
            for name in by_client:
                value = metrics.get(name) if isinstance(metrics, dict) else None
                by_client[name][client] = value if type(value) is float else np.nan
        own = measured.metrics if self.has_test else self._averaged(by_client)
        if not request.per_client:
            return Evaluated(metrics=own)
        return Evaluated(metrics=own, client_accuracy=by_client["accuracy"], client_loss=by_client["loss"])

    def _is_measured(self, device: int) -> bool:
        facts = self.mailbox.facts[device]
        return facts.holdout > 0 and "losses" in facts.allows

    def _averaged(self, by_client: dict[str, Floats]) -> dict[str, float]:
        """Return the mean of each metric over the devices that sent it, weighted by their hold-outs."""
        found = {}
        held = np.zeros(self.population.num_clients)
        for device, facts in self.mailbox.facts.items():
            if device < len(held):
                held[device] = facts.holdout
        for name, values in by_client.items():
            there = np.isfinite(values)
            if there.any():
                found[name] = float((values[there] * held[there]).sum() / held[there].sum())
        return found
