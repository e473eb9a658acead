"""Hostile clients: what they send is forged between the engine's answer and everything that looks at it.

The coordinator's requests pass through here. A request to train that reaches attackers asks for rows, and their rows
are replaced before a filter, a check or an aggregation sees them. Where nobody in a request attacks, it passes as it
is: with no attackers at all the run is, bit for bit, the run without an attack.

Only changes are forged. Losses, probes, second rows, buffers and reported steps are what honest training gave, on
the labels that the attack left.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.attacks.attack import Seen
from turnout.coordinator.plan import Plan
from turnout.generators import relay
from turnout.protocols import Population
from turnout.requests import Fit, Record, Reply, Steps, Trained
from turnout.requirement import ALONE
from turnout.streams import Streams

T = TypeVar("T")
MOST_NAMED = 20  # attackers listed in the first record


def with_adversaries(plan: Plan, population: Population, streams: Streams, steps: Steps[T]) -> Steps[T]:
    """Pass a run's requests on; forge what attackers answer, and note in every record how many there were."""
    if plan.attack is None:
        return (yield from steps)
    forge = plan.traits.attack.forge
    hostile = plan.attack.attackers(population.num_clients, streams)
    name = type(plan.attack).__name__

    def reply(request: Any) -> Reply:
        if isinstance(request, Record):
            request = _noted(request, hostile, name)
        is_sent = isinstance(request, Fit) and not request.on_server and request.purpose != ALONE
        if is_sent and forge is not None and hostile[request.clients].any():
            answer = yield _for_rows(request)
            return forged(forge, request, answer, hostile[request.clients])
        return (yield request)

    return (yield from relay(steps, reply))


def _for_rows(request: Fit) -> Fit:
    """Return the request for rows alone: sums over them would be sums of what attackers did not send."""
    offset = None if request.offset is None else replace(request.offset, scale=None, weights=None)
    return replace(request, coefficients=None, offset=offset)


def forged(forge: Callable[[Seen], Tensor], request: Fit, answer: Trained, hostile: Any) -> Trained:
    """Return the answer with the attackers' rows replaced; the answer itself is left as it was."""
    delta, theirs = cast(Tensor, answer.delta), np.flatnonzero(hostile)
    seen = Seen(
        round=request.round,
        streams=request.streams,
        model=request.model,
        clients=answer.clients,
        hostile=hostile,
        delta=delta,
    )
    rows = forge(seen).to(delta.dtype)
    squares = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).square().cpu().numpy()
    finite, norms = answer.finite.copy(), answer.square_norms
    finite[theirs] = torch.isfinite(rows).all(1).cpu().numpy()
    if norms is not None:
        norms = norms.copy()
        norms[theirs] = squares
    changed = delta.index_copy(0, torch.from_numpy(theirs).to(delta.device), rows)
    # the rows to remember follow from the changes, so they are worked out again from what was sent
    return replace(answer, delta=changed, finite=finite, square_norms=norms, next_rows=None, next_sum=None)


def _noted(record: Record, hostile: Any, name: str) -> Record:
    """Return the record with the number of attackers that answered, and how the model serves everyone else."""
    if record.round == 0:
        record = replace(record, events=(*record.events, f"{name}: {_listed(np.flatnonzero(hostile))}"))
    sent: Iterable[int] = (*record.answered.tolist(), *record.rejected)
    metrics = {**record.metrics, "attackers": float(sum(bool(hostile[client]) for client in sent))}
    if record.client_accuracy is not None:
        benign = record.client_accuracy[~hostile]
        if np.isfinite(benign).any():
            metrics["benign_accuracy"] = float(np.nanmean(benign))
    return replace(record, metrics=metrics)


def _listed(clients: Ids) -> str:
    if len(clients) == 0:
        return "nobody attacks"
    named = ", ".join(map(str, clients[:MOST_NAMED])) + (", …" if len(clients) > MOST_NAMED else "")
    return f"{len(clients)} clients attack: {named}" if len(clients) > 1 else f"client {named} attacks"
