"""Clients' own models of different architectures: a request on rows of the family's vector becomes one per member.

A rule asks for rows as long as the family's vector; of each row only the parameters of its client's architecture are
used, and the others stay as they were.
"""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.distillation import Distil, Distilled, Predict, Predicted
from turnout.errors import ConfigError
from turnout.generators import relay
from turnout.models.layout import Layout
from turnout.requests import EachEvaluated, EvaluateEach, Fit, Steps
from turnout.submodels import Parts, Submodel
from turnout.world.simulation.widths import Merged, fits, narrow

T = TypeVar("T")
Groups = list[tuple[Ids, Submodel]]  # positions of the clients of each architecture in a request, and their model


def by_member(steps: Steps[T], parts: Parts | None, layout: Layout) -> Steps[T]:
    """Run some steps to their end, with their requests for each architecture apart; None: there is one."""
    return (yield from relay(steps, lambda request: ask_members(request, parts, layout)))


def ask_members(request: Any, parts: Parts | None, layout: Layout) -> Steps[Any]:
    """Ask an engine for clients' own models, for each architecture apart, and return one answer for all."""
    if parts is None:
        return (yield request)
    if isinstance(request, Fit):
        return (yield from _fit(request, _groups(parts, request.clients), layout))
    if isinstance(request, Predict) and request.clients is not None:
        return (yield from _predict(request, _groups(parts, request.clients)))
    if isinstance(request, Distil):
        return (yield from _distil(request, _groups(parts, request.clients)))
    if isinstance(request, EvaluateEach):
        return (yield from _evaluate(request, _groups(parts, request.clients)))
    raise ConfigError(
        "A personal rule with trains_members can train, distil, evaluate and compare the predictions of clients' own "
        f"models; this one asks for {type(request).__name__}. Leave width out, or declare trains_members = False.",
        setting="personal.use",
    )


def _groups(parts: Parts, clients: Ids) -> Groups:
    numbers = parts.of(clients)
    return [(np.flatnonzero(numbers == number), parts.submodels[number]) for number in np.unique(numbers)]


def _fit(fit: Fit, groups: Groups, layout: Layout) -> Steps[Any]:
    """Train clients from rows of their own; an answer that does not fit its request is returned as it is."""
    starts = fit.model.repeat(len(fit.clients), 1) if fit.starts is None else fit.starts.take(fit.clients)
    merged, ends = Merged(fit), starts.clone()
    for places, member in groups:
        names = _names(layout, member)
        private, wanted = (tuple(name for name in each if name in names) for each in (fit.private, names))
        request = narrow(fit, places, [member] * len(places), _cut(starts, places, member), None)
        request = replace(request, own_models=fit.own_models, private=private, wants_ends=wanted)
        answer = yield request
        if not fits(answer, request) or answer.ends is None or tuple(answer.ends.shape) != _shape(request):
            return answer
        merged.add(places, [member] * len(places), answer)
        ends[torch.from_numpy(places)[:, None], member.columns] = answer.ends
    wants = layout.columns(fit.wants_ends)
    return replace(merged.trained(), ends=ends[:, wants] if fit.wants_ends else None)


def _predict(request: Predict, groups: Groups) -> Steps[Predicted]:
    found: list[Tensor] = []
    for places, member in groups:
        assert request.clients is not None
        models, clients = _cut(request.models, places, member), request.clients[places]
        part = replace(request, models=models, clients=clients, cut=member.sizes)
        found.append(part.outputs((yield part)))
    return Predicted(outputs=torch.cat(found)[_order(groups)])


def _distil(request: Distil, groups: Groups) -> Steps[Distilled]:
    """Distil clients' models; a gradient counts as much as its architecture costs, as in training."""
    trained, gradients = request.models.clone(), 0
    for places, member in groups:
        models, clients = _cut(request.models, places, member), request.clients[places]
        targets = request.targets if len(request.targets) == 1 else request.targets[torch.from_numpy(places)]
        part = replace(request, models=models, clients=clients, targets=targets, cut=member.sizes)
        answer = yield part
        trained[torch.from_numpy(places)[:, None], member.columns] = part.rows(answer)
        gradients += round(answer.gradients * member.step_cost)
    return Distilled(models=trained, gradients=gradients)


def _evaluate(request: EvaluateEach, groups: Groups) -> Steps[EachEvaluated]:
    loss = np.full(len(request.clients), np.nan)
    accuracy = None
    for places, member in groups:
        models = _cut(request.models, places, member)
        each: EachEvaluated = yield replace(request, models=models, clients=request.clients[places], cut=member.sizes)
        loss[places] = each.loss
        if each.accuracy is not None:
            accuracy = np.full(len(request.clients), np.nan) if accuracy is None else accuracy
            accuracy[places] = each.accuracy
    return EachEvaluated(loss=loss, accuracy=accuracy)


def _cut(rows: Tensor, places: Ids, member: Submodel) -> Tensor:
    """Return the parameters of a member, in the rows of these clients."""
    return rows[torch.from_numpy(places)[:, None], member.columns]


def _names(layout: Layout, member: Submodel) -> tuple[str, ...]:
    """Return the names of a member's parameters, which are one run of the vector."""
    first, last = int(member.columns[0]), int(member.columns[-1])
    return tuple(slot.name for slot in layout.slots if first <= slot.start <= last)


def _shape(request: Fit) -> tuple[int, int]:
    return len(request.clients), request.model.numel()


def _order(groups: Groups) -> Tensor:
    """Return where each client of a request is among the answers, one group after another."""
    return torch.from_numpy(np.argsort(np.concatenate([places for places, _ in groups])))
