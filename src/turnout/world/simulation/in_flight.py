"""Work on its way in a simulation: clients start and finish at their own times, and their updates wait until then.

When a client finishes is known from the clock before it has trained, so the events until a collection is closed are
played first. Everyone sent off with one model then trains in one request to the engine.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.findings import Findings
from turnout.coordinator.plan import Trust
from turnout.coordinator.trust import Expectation, fitting_updates
from turnout.ids import is_among
from turnout.orders import Order
from turnout.protocols import Memory
from turnout.requests import Fit, Trained

COLUMNS = {
    "clients": np.int64,
    "rounds": np.int64,
    "finish": np.float64,
    "seconds": np.float64,  # that the work takes
    "steps": np.int64,
    "loss": np.float64,
}
PREFIX = "in flight "


@dataclass(slots=True)
class Events:
    """What happens on the clock until a collection is closed."""

    sent_at: list[float] = field(default_factory=list)  # of the first places of the queue
    arrived: list[tuple[float, int]] = field(default_factory=list)  # (time, client)
    had_room: bool = False  # whether more clients could have been sent off than there were in the queue


def play(flight: list[tuple[float, int]], queue: Ids, seconds: Floats, now: float, limits: tuple[int, int]) -> Events:
    """Play the clock until enough updates are back or nobody is at work.

    Args:
        flight: (finish, client) of those at work.
        queue: clients to send off next, in order.
        seconds: how long each of the queue takes.
        now: simulated time.
        limits: how many updates are enough, and how many clients may be at work.
    """
    events, heap = Events(), list(flight)
    heapq.heapify(heap)

    def send(at: float) -> None:
        while len(events.sent_at) < len(queue) and len(heap) < limits[1]:
            place = len(events.sent_at)
            events.sent_at.append(at)
            heapq.heappush(heap, (at + float(seconds[place]), int(queue[place])))
        events.had_room |= len(heap) < limits[1]

    while len(events.arrived) < limits[0]:
        send(now)  # not after the last: the place it leaves is taken after the server step, with the new model
        if not heap:
            break
        events.arrived.append(heapq.heappop(heap))
        now = events.arrived[-1][0]
    return events


@dataclass(frozen=True, slots=True)
class InFlight:
    """Clients at work, in the order of ids, and the updates they will return."""

    columns: dict[str, np.ndarray] = field(
        default_factory=lambda: {name: np.zeros(0, dtype=kind) for name, kind in COLUMNS.items()}
    )
    rows: Tensor | None = None  # None: nobody is at work
    extra: Tensor | None = None  # second rows; without columns where the solver sends none
    reasons: dict[str, str] = field(default_factory=dict)  # why an update will be rejected, by client

    @classmethod
    def of(cls, memory: Memory) -> "InFlight":
        """Return what was saved."""
        if f"{PREFIX}rows" not in memory:
            return cls()
        saved = {name.removeprefix(PREFIX): value for name, value in memory.items() if name.startswith(PREFIX)}
        columns = {name: saved[name] for name in COLUMNS}
        return cls(columns, saved["rows"], saved["extra"], saved["reasons"])

    def saved(self) -> Memory:
        """Return everything that is at work, by the names under which it is saved."""
        if self.rows is None:
            return {}
        parts = {**self.columns, "rows": self.rows, "extra": self.extra, "reasons": self.reasons}
        return {f"{PREFIX}{name}": value for name, value in parts.items()}

    @property
    def clients(self) -> Ids:
        """Who is at work, ascending."""
        return self.columns["clients"]

    @property
    def rounds(self) -> Ids:
        """The round that handed each client its work."""
        return self.columns["rounds"]

    @property
    def steps(self) -> Ids:
        """The steps that each client does."""
        return self.columns["steps"]

    def play(self, queue: Ids, seconds: Floats, now: float, limits: tuple[int, int]) -> Events:
        """Play the clock from now on, with those at work."""
        flight = list(zip(self.columns["finish"].tolist(), self.clients.tolist(), strict=True))
        return play(flight, queue, seconds, now, limits)

    def joined(self, fit: Fit, order: Order, answer: Any, times: tuple[Floats, Floats]) -> "InFlight":
        """Return this with those just sent off, who take so long and finish then; the engine's answer is checked."""
        trained = fitting_updates(Expectation(order, fit.clients, fit.steps, fit.steps), answer, Trust(), Findings())
        assert trained.delta is not None
        fresh = {
            "clients": fit.clients,
            "rounds": np.full(len(fit.clients), fit.round),
            "seconds": times[0],
            "finish": times[1],
            "steps": fit.steps,
            "loss": trained.loss,
        }
        columns = {name: np.concatenate([self.columns[name], fresh[name]]) for name in COLUMNS}
        second = trained.delta.new_zeros(len(trained.delta), 0) if trained.extra is None else trained.extra
        rows = trained.delta.clone() if self.rows is None else torch.cat([self.rows, trained.delta])
        extra = second if self.extra is None else _stacked(self.extra, second)
        reasons = self.reasons | {str(client): reason for client, reason in trained.reasons.items()}
        both = InFlight(columns, rows, extra, reasons)
        return both.take(np.argsort(columns["clients"], kind="stable"))

    def take(self, which: np.ndarray) -> "InFlight":
        """Return some of it, by a mask or in an order."""
        columns = {name: values[which] for name, values in self.columns.items()}
        names = set(map(str, columns["clients"].tolist()))
        reasons = {name: why for name, why in self.reasons.items() if name in names}
        if self.rows is None or self.extra is None:
            return InFlight(columns, None, None, reasons)
        index = torch.from_numpy(which)
        return InFlight(columns, self.rows[index], self.extra[index], reasons)

    def split(self, clients: Sequence[int]) -> tuple["InFlight", "InFlight"]:
        """Return what these clients return, and the rest."""
        here = is_among(self.clients, clients)
        return self.take(here), self.take(~here)

    def trained(self) -> Trained | None:
        """Return the updates, with the reasons why some of them are to be rejected."""
        if self.rows is None:
            return None
        reasons = {int(client): why for client, why in self.reasons.items()}
        return Trained(
            clients=self.clients,
            steps=self.steps,
            loss=self.columns["loss"],
            finite=np.array([int(client) not in reasons for client in self.clients], dtype=bool),
            delta=self.rows,
            extra=self.extra if self.extra is not None and self.extra.shape[1] else None,
            reasons=reasons,
        )


def _stacked(upper: Tensor, lower: Tensor) -> Tensor:
    """Return second rows below each other; those of updates that have none are zeros."""
    width = max(upper.shape[1], lower.shape[1])
    parts = [rows if rows.shape[1] else rows.new_zeros(len(rows), width) for rows in (upper, lower)]
    return torch.cat(parts)
