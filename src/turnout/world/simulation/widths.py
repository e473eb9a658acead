"""Clients that train parts of the model: one request per size of submodel, and the answers put together.

A submodel is a smaller module with a task of its own. Submodels of one size are one module, whichever units they have,
so their clients train in one stack, each from its own start.

Where the width changes between local steps, every step is a request per size, from where the last step ended. That
costs as many requests as steps, and one row of the whole model per client.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator import Plan
from turnout.models.layout import Layout
from turnout.models.training_modules import FACTORS, INNER
from turnout.parameter_grids import Place, PlaceRows
from turnout.protocols import View
from turnout.requests import Evaluate, Evaluated, Fit, Steps, Trained
from turnout.row_table import RowSource, TableExcerpt
from turnout.submodels import Devices, Parts, Submodel, numbers_in_grids


@dataclass(slots=True)
class UpdateRoom:
    """Memory for the updates of narrow models, used again from round to round: new memory is slow to write to."""

    memory: Tensor | None = None

    def rows(self, count: int, model: Tensor) -> Tensor:
        """Return memory for so many rows like a narrow model."""
        memory, need = self.memory, count * model.numel()
        if memory is None or memory.numel() < need or memory.dtype != model.dtype or memory.device != model.device:
            memory = self.memory = model.new_empty(need)
        return memory[:need].view(count, model.numel())


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


def train_parts(fit: Fit, parts: Parts, layout: Layout | None, room: UpdateRoom) -> Steps[Any]:
    """Have an engine train clients, each its part of the model; updates are 0 outside of it.

    An answer that does not fit its request is returned as it is, for the coordinator to judge.
    """
    if parts.steps is not None and ((parts.steps >= 0) & (parts.steps != parts.which[:, None])).any():
        assert layout is not None
        return (yield from _step_by_step(fit, parts, tuple(slot.name for slot in layout.slots)))
    if all(parts.submodels[number].is_whole for number in parts.which) and not parts.masked().any():
        return (yield fit)
    merged = Merged(fit)
    for places in _places_by_kind(parts, np.arange(len(parts.which)), parts.which):
        submodels = [parts.submodels[number] for number in parts.which[places]]
        factors = _factors(parts, places, fit.model)
        request = narrow(fit, places, submodels, None, factors)
        if request.coefficients is None:
            request = replace(request, into=room.rows(len(places), request.model))
        answer = yield request
        if not fits(answer, request):
            return answer
        merged.add(places, submodels, answer if factors is None else _unmasked(answer, parts, places, submodels))
    return merged.trained()


def _places_by_kind(parts: Parts, places: Ids, numbers: Ids) -> list[Ids]:
    """Return these positions of clients, apart by size, by what was cut together, and by whether labels are masked."""
    by_kind: dict[tuple[Any, ...], list[int]] = {}
    masked = parts.masked()
    for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
        own, submodel = parts.submodels[parts.which[place]].sizes if parts.distils else None, parts.submodels[number]
        by_kind.setdefault((own, submodel.sizes, id(submodel.among), bool(masked[place])), []).append(place)
    return [np.array(group) for group in by_kind.values()]


def _inside(fit: Fit) -> Fit:
    """Return the request for a module that is part of another one: its parameters have longer names."""
    return replace(fit, wants_ends=tuple(f"{INNER}.{name}" for name in fit.wants_ends))


def _factors(parts: Parts, places: Ids, model: Tensor) -> Tensor | None:
    """Return 1 for each label that a client holds and 0 for the others; None where these clients hold every label."""
    if parts.labels is None or not parts.masked()[places].any():
        return None
    return torch.from_numpy(parts.labels.held[places]).to(model)


def _unmasked(answer: Trained, parts: Parts, places: Ids, submodels: list[Submodel]) -> Trained:
    """Return the answer of clients with masked labels without their factors; their rows of such labels do not count."""
    assert parts.labels is not None
    assert answer.delta is not None
    delta, pairs = answer.delta[:, parts.labels.held.shape[1] :], zip(places, submodels, strict=True)
    trained = torch.stack([parts.labels.trained(int(place), submodel.columns) for place, submodel in pairs])
    return replace(answer, delta=torch.where(trained, delta, torch.zeros_like(delta)))


def narrow(fit: Fit, places: Ids, submodels: list[Submodel], starts: Tensor | None, factors: Tensor | None) -> Fit:
    """Return the request for these clients, whose submodels have one size, each from its start or from the model.

    With factors, one row per client, a client's model starts with its own: they multiply its outputs, and do not move.
    """
    first, clients = submodels[0], fit.clients[places]
    is_one = first.is_whole or all(submodel.where is first.where for submodel in submodels)
    own: RowSource | None = None if starts is None else TableExcerpt(clients, starts)
    if starts is None and not is_one and isinstance(first.where, Place):
        own = PlaceRows(clients, fit.model, first.where.grids, numbers_in_grids(submodels))
    model = fit.model if first.is_whole else fit.model[first.columns]
    if factors is not None:
        starts = model.expand(len(clients), -1) if own is None else own.read(clients)
        own = TableExcerpt(clients, torch.cat([factors, starts], 1))
        model = torch.cat([torch.ones_like(factors[0]), model])
        fit = replace(_inside(fit), frozen=(FACTORS,), masked=True, wants_norms=False)
    coefficients = fit.coefficients if is_one and factors is None else None
    return replace(
        fit,
        model=model,
        cut=None if first.is_whole and factors is None and fit.distil is None else first.sizes,
        scaled=first.is_scaled,
        clients=clients,
        steps=fit.steps[places],
        settings={name: values[places] for name, values in fit.settings.items()},
        coefficients=None if coefficients is None else coefficients[places],
        buffer_weights=fit.buffer_weights[places],
        starts=own,
        own_models=not is_one,
        into=None,
    )


def fits(answer: Any, request: Fit) -> bool:
    """Whether an answer has one sum, or one row per client, of the size that was asked for."""
    if not isinstance(answer, Trained) or not np.array_equal(answer.clients, request.clients):
        return False
    count, size = len(request.clients), request.model.numel()
    if request.coefficients is None:
        return answer.delta is not None and tuple(answer.delta.shape) == (count, size)
    return answer.reduced is not None and tuple(answer.reduced.shape) == (size,)


class Merged:
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
        if self.norms is not None:
            self.norms[places] = _square_norms(answer.delta) if answer.square_norms is None else answer.square_norms
        if answer.reduced is not None and self.reduced is not None:
            self.reduced[submodels[0].columns] += answer.reduced
            return
        assert answer.delta is not None
        where = submodels[0].where
        if self.reduced is not None and self.fit.coefficients is not None and isinstance(where, Place):
            where.grids.add(self.reduced, numbers_in_grids(submodels), answer.delta, self.fit.coefficients[places])
            return
        for place, submodel, row in zip(places.tolist(), submodels, answer.delta, strict=True):
            if self.delta is not None:
                self.delta[place].scatter_(0, submodel.columns, row)
            elif self.reduced is not None and self.fit.coefficients is not None:
                self.reduced.scatter_add_(0, submodel.columns, row * float(self.fit.coefficients[place]))

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


def _square_norms(delta: Tensor | None) -> Floats:
    assert delta is not None
    return np.asarray(torch.linalg.vector_norm(delta, dim=1, dtype=torch.float64).square().cpu().numpy())


def _step_by_step(fit: Fit, parts: Parts, names: tuple[str, ...]) -> Steps[Any]:
    """Train clients whose width changes between local steps; the solver keeps nothing between them."""
    assert parts.steps is not None
    models, losses = fit.model.repeat(len(fit.clients), 1), np.zeros(len(fit.clients))
    for step in range(int(fit.steps.max())):
        active = np.flatnonzero(fit.steps > step)
        for places in _places_by_kind(parts, active, parts.steps[active, step]):
            drawn, own = (parts.submodels[numbers[places[0]]] for numbers in (parts.steps[:, step], parts.which))
            submodel = own if parts.distils else drawn
            one_step = replace(fit, steps=np.ones_like(fit.steps), coefficients=np.zeros(len(fit.clients)))
            one_step = replace(one_step, wants_norms=False, wants_ends=names, first_step=step)
            one_step = replace(one_step, settings=_settings_at(fit.settings, step))
            if submodel is not drawn:
                one_step = replace(_inside(one_step), distil=drawn.sizes)
            index = torch.from_numpy(places)[:, None]
            starts, factors = models[index, submodel.columns], _factors(parts, places, fit.model)
            request = narrow(one_step, places, [submodel] * len(places), starts, factors)
            answer = yield request
            if not fits(answer, request) or answer.ends is None or answer.ends.shape[0] != len(places):
                return answer
            models[index, submodel.columns] = answer.ends
            losses[places] += answer.loss / fit.steps[places]
    delta = fit.model - models
    for place in np.flatnonzero(parts.masked()):
        assert parts.labels is not None
        delta[place] *= parts.labels.trained(int(place), torch.arange(parts.size, device=delta.device))
    finite, squares = torch.isfinite(delta).all(1).cpu().numpy(), _square_norms(delta)
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


def _settings_at(settings: Mapping[str, Floats], step: int) -> Mapping[str, Floats]:
    """Return a solver's settings for a request of one step, in which no learning rate has decayed yet."""
    if "lr_decay" not in settings:
        return settings
    return {**settings, "lr": settings["lr"] * settings["lr_decay"] ** step}
