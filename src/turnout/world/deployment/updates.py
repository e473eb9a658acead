"""Updates as they come off the wire, made into one answer of the form that the coordinator checks.

Here only what is about the wire is decided, per device: is there an update, for this round and client, of the right
shape and type? Whether its numbers can be used is decided by `turnout.coordinator.trust`, as in every world.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.orders import Order
from turnout.progress import Progress
from turnout.requests import Trained
from turnout.rows import is_finite
from turnout.world.deployment.mailbox import Ticket, reason_of
from turnout.world.deployment.parcel import BadParcelError, Parcel
from turnout.world.deployment.transport import Reply

NO_CLIENTS: Ids = np.zeros(0, dtype=np.int64)


@dataclass(slots=True)
class Updates:
    """The updates of some devices."""

    trained: Trained | None
    rounds: Ids
    clients: Ids
    asked: Ids  # local steps
    seconds: dict[int, float] = field(default_factory=dict)  # per local step, as devices say
    changes: dict[int, Tensor] = field(default_factory=dict)  # of what they remember, where they send it

    def progress(self, deadline_seconds: float) -> Progress | None:
        """Return how far devices got and how long they say it took.

        The deadline stopped those that did less than they were asked for: that is how far they got by then.
        """
        if self.trained is None:
            return None
        steps = self.trained.steps
        per_step = np.array([self.seconds.get(client, np.nan) for client in self.clients.tolist()])
        cut_off = (steps < self.asked) & np.isfinite(per_step)
        seconds = np.where(cut_off, deadline_seconds, per_step * steps)
        return Progress(clients=self.clients, steps=steps, seconds=seconds, cut_off=cut_off)


def read_updates(
    order: Order, came: Mapping[int, tuple[Ticket, Reply]], shares: Floats, *, with_extra: bool, with_change: bool
) -> Updates:
    """Return the answer that these replies make; what cannot be read is marked with its reason.

    Args:
        order: says how large an update is.
        came: the replies, by client.
        shares: weight of each client, by id, for averaging running statistics.
        with_extra: whether the local solver sends a second row.
        with_change: whether devices send how what they remember changed.
    """
    clients = np.array(sorted(came), dtype=np.int64)
    rounds = np.array([came[client][0].round for client in sorted(came)], dtype=np.int64)
    asked = np.array([came[client][0].asked_steps for client in sorted(came)], dtype=np.int64)
    if not len(clients):
        return Updates(None, rounds, clients, asked)
    model, count = order.model, len(clients)
    delta = model.new_full((count, model.numel()), torch.nan)
    extra = torch.full_like(delta, torch.nan) if with_extra else None
    steps, loss = np.zeros(count, dtype=np.int64), np.full(count, np.nan)
    examples, reasons = np.ones(count, dtype=np.int64), {}
    updates, buffers = Updates(None, rounds, clients, asked), {}
    for at, client in enumerate(clients.tolist()):
        ticket, reply = came[client]
        try:
            parcel = _fitting(ticket, reply)
            steps[at], loss[at] = parcel.whole("steps"), parcel.number("loss")
            examples[at] = parcel.whole("num_examples")
            spent = parcel.seconds("seconds")
            row = parcel.vector("delta", model)
            second = parcel.vector("extra", model) if with_extra else None
            change = parcel.vector("change", model) if with_change else None
            running = None if order.buffers is None else parcel.vector("buffers", order.buffers)
            if running is not None and not is_finite(running):
                raise BadParcelError("the running statistics are not finite")
        except BadParcelError as error:
            reasons[client] = str(error)
            continue
        delta[at] = row
        if extra is not None and second is not None:
            extra[at] = second
        if change is not None:
            updates.changes[client] = change
        if running is not None and is_finite(row):
            buffers[client] = running
        updates.seconds[client] = spent / max(int(steps[at]), 1)
    finite = np.array([client not in reasons for client in clients.tolist()])
    updates.trained = Trained(
        clients=clients,
        steps=steps,
        loss=loss,
        finite=finite,
        delta=delta,
        extra=extra,
        buffers=_mean(buffers, shares),
        num_examples=examples,
        reasons=reasons,
    )
    return updates


def _fitting(ticket: Ticket, reply: Reply) -> Parcel:
    """Return a reply's update; raise BadParcelError if it is none, or answers something else."""
    parcel = reply.parcel
    if parcel is None or parcel.kind != "train":
        raise BadParcelError(reason_of(reply))
    if parcel.whole("round") != ticket.round:
        raise BadParcelError(f"the answer is for round {parcel.whole('round')}, and round {ticket.round} was asked")
    if parcel.whole("client") != ticket.device:
        raise BadParcelError(f"the answer is for client {parcel.whole('client')}")
    return parcel


def _mean(buffers: Mapping[int, Tensor], shares: Floats) -> Tensor | None:
    """Return the weighted mean of running statistics."""
    if not buffers:
        return None
    weights = shares[list(buffers)]
    total = float(weights.sum())
    parts = [value * (float(weight) / total) for value, weight in zip(buffers.values(), weights, strict=True)]
    return torch.stack(parts).sum(0)
