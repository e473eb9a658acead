"""Clients that train parts of the model: one request per size of submodel, and the answers put together.

A submodel is a smaller module with a task of its own. Submodels of one size are one module, whichever units they have,
so their clients train in one stack, each from its own start.

Where the width changes between local steps, every step is a request per size, from where the last step ended. That
costs as many requests as steps, and one row of the whole model per client.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator import Plan
from turnout.models.layout import Layout
from turnout.protocols import View
from turnout.requests import Evaluate, Evaluated, Fit, Steps, Trained
from turnout.row_table import TableExcerpt
from turnout.submodels import Devices, Parts, Submodel


def seconds_per_step(plan: Plan, view: View) -> Floats | None:
    """Return how long a local step of the whole model takes every client, where a width rule needs it."""
    pace = plan.traits.clock.pace
    if pace is None or not plan.traits.width.needs_speed:
        return None
    return np.asarray(pace(np.arange(view.population.num_clients), 0, view).seconds_per_step)


def loaded(parts: Parts, clients: Ids, view: View) -> View:
    """Return a view that says what the local steps of these clients cost."""
    costs = np.ones(view.population.num_clients)
    costs[clients] = parts.step_costs(clients)
    return replace(view, devices=Devices(step_costs=costs))


def evaluate_parts(parts: Mapping[str, Submodel], request: Evaluate, measured: Evaluated) -> Steps[Evaluated]:
    """Have an engine measure parts of the model, given by how their metrics end, and add these to the whole model's."""
    for words, part in parts.items():
        cut = None if part.is_whole else part.sizes
        found: Evaluated = yield replace(request, model=request.model[part.columns], cut=cut, per_client=False)
        values = {f"{name}_{words}": value for name, value in found.metrics.items()}
        measured = replace(measured, metrics=measured.metrics | values)
    return measured


def train_parts(fit: Fit, parts: Parts, layout: Layout | None) -> Steps[Any]:
    """Have an engine train clients, each its part of the model; updates are 0 outside of it.

    An answer that does not fit its request is returned as it is, for the coordinator to judge.
    """
    if parts.steps is not None and ((parts.steps >= 0) & (parts.steps != parts.which[:, None])).any():
        assert layout is not None
        return (yield from _step_by_step(fit, parts, tuple(slot.name for slot in layout.slots)))
    if all(parts.submodels[number].is_whole for number in parts.which):
        return (yield fit)
    merged = _Merged(fit)
    for places in _places_by_size(parts, parts.which):
        submodels = [parts.submodels[number] for number in parts.which[places]]
        request = _narrow(fit, places, submodels, None)
        answer = yield request
        if not _fits(answer, request):
            return answer
        merged.add(places, submodels, answer)
    return merged.trained()


def _places_by_size(parts: Parts, numbers: Ids) -> list[Ids]:
    """Return the positions of clients, apart by the size of their submodels."""
    by_size: dict[tuple[int, ...], list[int]] = {}
    for place, number in enumerate(numbers.tolist()):
        by_size.setdefault(parts.submodels[number].sizes, []).append(place)
    return [np.array(places) for places in by_size.values()]


def _narrow(fit: Fit, places: Ids, submodels: list[Submodel], starts: Tensor | None) -> Fit:
    """Return the request for these clients, whose submodels have one size, each from its start or from the model."""
    first, clients = submodels[0], fit.clients[places]
    is_one = first.is_whole or all(submodel is first for submodel in submodels)
    if starts is None and not is_one:
        starts = torch.stack([fit.model[submodel.columns] for submodel in submodels])
    coefficients = fit.coefficients if is_one else None
    return replace(
        fit,
        model=fit.model if first.is_whole else fit.model[first.columns],
        cut=None if first.is_whole else first.sizes,
        scaled=first.is_scaled,
        clients=clients,
        steps=fit.steps[places],
        settings={name: values[places] for name, values in fit.settings.items()},
        coefficients=None if coefficients is None else coefficients[places],
        buffer_weights=fit.buffer_weights[places],
        starts=None if starts is None else TableExcerpt(clients, starts),
        own_models=not is_one,
        into=None,
    )


def _fits(answer: Any, request: Fit) -> bool:
    """Whether an answer has one sum, or one row per client, of the size that was asked for."""
    if not isinstance(answer, Trained) or not np.array_equal(answer.clients, request.clients):
        return False
    count, size = len(request.clients), request.model.numel()
    if request.coefficients is None:
        return answer.delta is not None and tuple(answer.delta.shape) == (count, size)
    return answer.reduced is not None and tuple(answer.reduced.shape) == (size,)


class _Merged:
    """The answer for all clients in the making."""

    def __init__(self, fit: Fit) -> None:
        self.fit, count = fit, len(fit.clients)
        self.loss, self.finite = np.full(count, np.nan), np.zeros(count, dtype=bool)
        self.norms = np.zeros(count) if fit.wants_norms else None
        self.reduced: Tensor | None = None
        self.delta: Tensor | None = None
        if fit.coefficients is None:
            self.delta = fit.model.new_zeros(count, fit.model.numel()) if fit.into is None else fit.into[:count].zero_()
        else:
            self.reduced = torch.zeros_like(fit.model)

    def add(self, places: Ids, submodels: list[Submodel], answer: Trained) -> None:
        """Take in the answer of some clients."""
        self.loss[places], self.finite[places] = answer.loss, answer.finite
        if self.norms is not None and answer.square_norms is not None:
            self.norms[places] = answer.square_norms
        if answer.reduced is not None and self.reduced is not None:
            self.reduced[submodels[0].columns] += answer.reduced
            return
        assert answer.delta is not None
        for place, submodel, row in zip(places.tolist(), submodels, answer.delta, strict=True):
            if self.delta is not None:
                self.delta[place, submodel.columns] = row
            elif self.reduced is not None and self.fit.coefficients is not None:
                self.reduced[submodel.columns] += row * float(self.fit.coefficients[place])

    def trained(self) -> Trained:
        """Return the answer."""
        return Trained(
            clients=self.fit.clients,
            steps=self.fit.steps,
            loss=self.loss,
            finite=self.finite,
            reduced=self.reduced,
            delta=self.delta,
            square_norms=self.norms,
        )


def _step_by_step(fit: Fit, parts: Parts, names: tuple[str, ...]) -> Steps[Any]:
    """Train clients whose width changes between local steps; the solver keeps nothing between them."""
    assert parts.steps is not None
    models, losses = fit.model.repeat(len(fit.clients), 1), np.zeros(len(fit.clients))
    for step in range(int(fit.steps.max())):
        active = np.flatnonzero(fit.steps > step)
        for some in _places_by_size(parts, parts.steps[active, step]):
            places = active[some]
            submodel = parts.submodels[parts.steps[places[0], step]]
            one_step = replace(fit, steps=np.ones_like(fit.steps), coefficients=np.zeros(len(fit.clients)))
            one_step = replace(one_step, wants_norms=False, wants_ends=names, first_step=step)
            index = torch.from_numpy(places)[:, None]
            request = _narrow(one_step, places, [submodel] * len(places), models[index, submodel.columns])
            answer = yield request
            if not _fits(answer, request) or answer.ends is None or answer.ends.shape[0] != len(places):
                return answer
            models[index, submodel.columns] = answer.ends
            losses[places] += answer.loss / fit.steps[places]
    delta = fit.model - models
    finite = torch.isfinite(delta).all(1).cpu().numpy()
    squares = torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).square().cpu().numpy()
    reduced = None if fit.coefficients is None else delta.new_tensor(fit.coefficients) @ delta
    return Trained(
        clients=fit.clients,
        steps=fit.steps,
        loss=losses,
        finite=finite,
        reduced=reduced,
        delta=delta if reduced is None else None,
        square_norms=squares if fit.wants_norms else None,
    )
