"""The world of real devices: it answers the round with messages to devices, and waits for what comes back.

Nothing is known beforehand. Who is up is who is connected; how far a device got is what it says; when it is there is
when its answer is. Rows are weighed by the coordinator once they have come and were checked.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Ids
from turnout.coordinator import Plan
from turnout.errors import UpdateError
from turnout.orders import Order
from turnout.protocols import Memory, Population
from turnout.requests import (
    Census,
    Collect,
    Dispatch,
    Evaluate,
    Evaluated,
    Expect,
    Expected,
    Fit,
    Present,
    Probe,
    Probed,
    Recall,
    Recalled,
    Record,
    Returns,
    Score,
    Scored,
    Settle,
    Settled,
    Steps,
)
from turnout.rows import is_finite
from turnout.streams import Streams
from turnout.world.answering import Answers
from turnout.world.deployment.limits import Limits
from turnout.world.deployment.mailbox import Mailbox, Ticket
from turnout.world.deployment.parcel import Parcel, as_array
from turnout.world.deployment.questions import Questions, model_arrays
from turnout.world.deployment.transport import Reply
from turnout.world.deployment.updates import Updates, read_updates


@dataclass(slots=True)
class Handed:
    """Work that was handed out in a round, or is still to be."""

    order: Order
    at: float  # on the mailbox's clock
    queue: list[int] = field(default_factory=list)  # clients that are not asked yet, in order
    most_at_work: int | None = None
    lost: set[int] = field(default_factory=set)  # clients that will not answer this order


@dataclass(slots=True, kw_only=True)
class Deployment:
    """Devices, reached through a mailbox."""

    plan: Plan
    population: Population
    streams: Streams
    mailbox: Mailbox
    limits: Limits
    run: str  # names the run on the devices, letters and digits
    has_test: bool  # whether the server has a test set of its own
    questions: Questions = field(init=False)
    memory: Memory = field(default_factory=dict)
    admitted: np.ndarray = field(init=False)  # bool by client: its number of samples is known
    kept_round: Ids = field(init=False)  # by client: the last round whose client state counts; 0: none
    departed: set[int] = field(init=False)  # devices that said goodbye and have not come back
    seconds: float = field(init=False)  # that the run has taken so far
    began: float = field(init=False)
    is_beginning: bool = field(init=False, default=True)
    handed: Handed | None = field(init=False, default=None)
    at_work: dict[int, Ticket] = field(init=False, default_factory=dict)  # where the server does not wait
    orphans: Ids = field(init=False)  # clients at work when the server was stopped: their answers cannot come
    settling: Ids = field(init=False)
    changes: dict[int, Tensor] = field(init=False, default_factory=dict)
    pace: dict[int, float] = field(init=False, default_factory=dict)  # seconds per step, as devices last said

    def __post_init__(self) -> None:
        count = self.population.num_clients
        self.questions = Questions(self.mailbox, self.limits, self.population, self.run, self.has_test)
        self.admitted = np.array(self.memory.get("admitted", np.zeros(count, dtype=bool)))
        self.kept_round = np.array(self.memory.get("kept_round", np.zeros(count, dtype=np.int64)))
        self.orphans = np.array(self.memory.get("at_work", np.zeros(0, dtype=np.int64)))
        self.seconds, self.began = float(self.memory.get("seconds", 0.0)), self.mailbox.clock()
        self.population.sizes[:] = self.memory.get("sizes", self.population.sizes)
        self.departed = set(np.asarray(self.memory.get("departed", [])).tolist())
        self.settling = np.zeros(0, dtype=np.int64)

    def saved(self) -> Memory:
        """Return what the world carries from one round to the next."""
        return {
            "seconds": self.now,
            "kept_round": self.kept_round.copy(),
            "admitted": self.admitted.copy(),
            "sizes": self.population.sizes.copy(),
            "at_work": np.array(sorted(self.at_work), dtype=np.int64),
            "departed": np.array(sorted(self.departed), dtype=np.int64),
        }

    @property
    def now(self) -> float:
        """Seconds that the run has taken."""
        return self.seconds + self.mailbox.clock() - self.began

    @property
    def has_fixed_members(self) -> bool:
        """Whether everyone is a member always: rounds overlap, or a guarantee counts on it."""
        return self.plan.fleet.membership is None

    def census(self, request: Census) -> Steps[Present]:
        """Return who belongs and who is connected and idle; wait for somebody to be."""
        yield from ()
        if self.is_beginning:
            self._gather(request.round)
        waits = self.plan.asynchrony is None
        found = self.mailbox.wait_for(0 if self.at_work else 1, self.limits.wait_seconds, idle=waits)
        self._admit()
        members = self._members()
        up = _ids(found) if members is None else np.intersect1d(found, members)  # one may just have said goodbye
        return Present(members=members, up=up, sim_seconds=self.now)

    def _gather(self, round: int) -> None:
        """Wait for devices before the first round; when a run goes on, only for as long as messages take."""
        self.is_beginning, everyone = False, self.population.num_clients
        least = everyone if self.has_fixed_members else (self.limits.start_with or everyone)
        seconds = self.limits.wait_seconds if round == 0 else self.limits.grace_seconds
        found = self.mailbox.wait_for(least, seconds)
        if round == 0 and len(found) < least:
            raise UpdateError(
                f"The first round needs {least} devices; {len(found)} were connected after {seconds:.0f} s. "
                "Start the others, or lower limits.start_with in deployment.toml."
            )

    def _admit(self) -> None:
        """Take over the numbers of samples of devices that have joined; a known device's stays as it was."""
        for device, facts in self.mailbox.facts.items():
            if not self.admitted[device]:
                self.admitted[device] = True
                self.population.sizes[device] = facts.num_examples

    def _members(self) -> Ids | None:
        if self.has_fixed_members:
            return None
        oldest = self.mailbox.clock() - self.limits.gone_after_seconds
        seen = {device for device in self.mailbox.facts if self.mailbox.last_seen.get(device, oldest) > oldest}
        self.departed = (self.departed | self.mailbox.departed()) - set(self.mailbox.connected())
        return _ids(sorted(seen - self.departed))

    def expect(self, request: Expect) -> Steps[Expected]:
        """Return how long the work would take by what devices last said; nothing where one has said nothing."""
        yield from ()
        if not all(client in self.pace for client in request.clients.tolist()):
            return Expected()
        pace = np.array([self.pace[client] for client in request.clients.tolist()])
        within = np.floor(self.limits.deadline_seconds / np.maximum(pace, 1e-9))
        steps = np.clip(within, 1, request.steps).astype(np.int64)
        return Expected(steps=steps, seconds=pace * request.steps)

    def dispatch(self, request: Dispatch) -> Steps[None]:
        """Send the order to each client, one message each."""
        yield from ()
        order = request.order
        self.handed = Handed(order, self.mailbox.clock())
        if order.on_server:
            return
        if request.sequence is None:
            self.handed.lost = set(order.clients.tolist()) - set(self._push(order, order.clients.tolist()))
        else:
            self.handed.queue, self.handed.most_at_work = request.sequence.tolist(), request.most_at_work

    def _push(self, order: Order, clients: list[int]) -> dict[int, str]:
        arrays = model_arrays(order.model, order.buffers)  # the same for all: a transport may send them once
        if order.shared is not None:
            arrays["shared"] = as_array(order.shared)
        parcels = {client: Parcel("train", self._order(order, client), arrays) for client in clients}
        return self.mailbox.send(parcels, self.limits.message_seconds, order.round)

    def _order(self, order: Order, client: int) -> dict[str, Any]:
        """Return what one client is told: settings, steps, deadline, and which client state counts."""
        at = int(np.searchsorted(order.clients, client))
        return {
            "round": order.round,
            "seed": order.streams.seed,
            "client": client,
            "run": self.run,
            "steps": int(order.steps[at]),
            "deadline_seconds": self.limits.deadline_seconds,
            "settings": {name: float(column[at]) for name, column in order.settings.items()},
            "kept_round": int(self.kept_round[client]),
        }

    def collect(self, request: Collect) -> Steps[Returns]:
        """Wait for everyone until the deadline, or for the first few."""
        handed = self.handed
        assert handed is not None
        if handed.order.on_server:
            return (yield from self._on_server(handed.order))
        came = self._first(request.first, handed) if request.first is not None else self._all(request, handed)
        updates = self._read(handed.order, came)
        if request.first is None:
            there = set(self.mailbox.connected()) - handed.lost
            silent = [client for client in request.clients.tolist() if client not in came]
            return self._returns(updates, handed, late=_ids([client for client in silent if client in there]))
        return self._returns(updates, handed)

    def _all(self, request: Collect, handed: Handed) -> dict[int, tuple[Ticket, Reply]]:
        """Return the answers of this round's clients that come before the server stops waiting."""
        came: dict[int, tuple[Ticket, Reply]] = {}
        wanted, end = set(request.clients.tolist()), handed.at + self.limits.round_seconds
        while wanted - set(came) - handed.lost and self.mailbox.clock() < end:
            pair = self.mailbox.next_update()
            if pair is None:
                self.mailbox.pause()
                continue
            ticket, reply = pair
            if ticket.kind != "train" or ticket.round != handed.order.round or ticket.device not in wanted:
                self._note_late(ticket, reply)
            elif reply.is_lost:
                handed.lost.add(ticket.device)
                self.mailbox.note(f"client {ticket.device}: {reply.reason}")
            elif ticket.device not in came:
                came[ticket.device] = pair
        return came

    def _first(self, count: int, handed: Handed) -> dict[int, tuple[Ticket, Reply]]:
        """Return the first few answers, of whichever round; a place that becomes free is taken by the next in line."""
        came: dict[int, tuple[Ticket, Reply]] = {}
        end = self.mailbox.clock() + self.limits.round_seconds
        while len(came) < count and self.mailbox.clock() < end:
            self._fill(handed)
            if not self.at_work:
                break
            pair = self.mailbox.next_update()
            if pair is None:
                self.mailbox.pause()
                continue
            ticket, reply = pair
            mine = self.at_work.get(ticket.device)
            if mine is None or mine.round != ticket.round:
                self._note_late(ticket, reply)
                continue
            self.at_work.pop(ticket.device, None)
            if reply.is_lost:
                self.orphans = np.union1d(self.orphans, [ticket.device])
                self.mailbox.note(f"client {ticket.device}: {reply.reason}")
            else:
                came[ticket.device] = pair
        return came

    def _fill(self, handed: Handed) -> None:
        """Hand work to the next in line, as far as there is room."""
        room = (handed.most_at_work or 0) - len(self.at_work)
        now, handed.queue = handed.queue[: max(room, 0)], handed.queue[max(room, 0) :]
        tickets = self._push(handed.order, now)
        expires = self.mailbox.clock() + self.limits.message_seconds
        self.at_work |= {client: Ticket(client, "train", handed.order.round, expires) for client in tickets}

    def _note_late(self, ticket: Ticket, reply: Reply) -> None:
        if not reply.is_lost:
            self.mailbox.note(f"client {ticket.device} answered round {ticket.round} after it was closed")

    def _read(self, order: Order, came: dict[int, tuple[Ticket, Reply]]) -> Updates:
        kept = order.local.client_state
        updates = read_updates(
            order,
            came,
            self.population.sizes.astype(np.float64),
            with_extra=self.plan.traits.local.correction == "joint",
            with_change=kept is not None and kept.source == "gradient",
        )
        self.pace |= updates.seconds
        self.changes = updates.changes
        return updates

    def _returns(self, updates: Updates, handed: Handed, late: Ids | None = None) -> Returns:
        waited = self.mailbox.clock() - handed.at
        lost, self.orphans = (self.orphans, _ids([])) if late is None else (_ids([]), self.orphans)
        sent = [client for client, ticket in self.at_work.items() if ticket.round == handed.order.round]
        here = updates.clients[updates.rounds == handed.order.round].tolist()
        gone = [client for client in lost.tolist() if client in handed.order.clients]
        return Returns(
            clients=updates.clients,
            steps=np.full(len(updates.clients), -1),
            rounds=updates.rounds,
            work=updates.trained,
            facts=None,
            late=_ids([]) if late is None else late,
            sent=_ids([]) if late is not None else _ids(sorted({*sent, *here, *gone})),
            lost=lost,
            seconds=waited,
            progress=updates.progress(self.limits.deadline_seconds),
        )

    def _on_server(self, order: Order) -> Steps[Returns]:
        """Have the server's own engine train on the server's samples."""
        fit = Fit(
            round=order.round,
            streams=order.streams,
            model=order.model,
            buffers=order.buffers,
            clients=order.clients,
            steps=order.steps,
            local=order.local,
            settings=order.settings,
            coefficients=None,
            buffer_weights=np.ones(1),
            on_server=True,
        )
        answer = yield fit
        rounds = np.full(len(order.clients), order.round)
        return Returns(clients=order.clients, steps=order.steps, rounds=rounds, work=answer, facts=None)

    def settle(self, request: Settle) -> Steps[Settled]:
        """Return the mean of what devices remember from here on; each is told with its next order.

        Where the new row follows from the update, so does its change: s_i Δ_i − c. Else the device sent it.
        """
        yield from ()
        order, facts, kept = request.order, request.facts, request.order.local.client_state
        self.settling = facts.clients
        if kept is None:
            return Settled(shared=None)
        assert order.shared is not None
        assert request.trained.delta is not None
        weights = order.shared.new_tensor(facts.weights)
        if kept.source == "update":
            change = request.trained.delta * order.shared.new_tensor(kept.scale(facts))[:, None] - order.shared
        else:
            change = torch.stack([self.changes[client] for client in facts.clients.tolist()])
        return Settled(shared=order.shared + weights @ change, finite=is_finite(change))

    def recall(self, request: Recall) -> Steps[Recalled]:
        """Ask devices for what they remember."""
        yield from ()
        return self.questions.recall(request, self.kept_round)

    def probe(self, request: Probe) -> Steps[Probed]:
        """Ask devices for losses or gradients."""
        yield from ()
        return self.questions.probe(request)

    def score(self, request: Score) -> Steps[Scored]:
        """Have models scored by the server's engine or by a device."""
        return (yield from self.questions.score(request))

    def evaluate(self, request: Evaluate) -> Steps[Evaluated]:
        """Have a model measured by the server's engine, by devices, or by both."""
        return (yield from self.questions.evaluate(request))

    def close(self, record: Record) -> Steps[None]:
        """End the round: clients whose update made a kept step will be told so with their next order."""
        if record.step_kept:
            self.kept_round[self.settling] = record.round
        self.settling = _ids([])
        state = None if record.state is None else replace(record.state, world=self.saved())
        yield replace(record, state=state, events=(*record.events, *self.mailbox.taken_notes()))


def _ids(clients: list[int]) -> Ids:
    return np.array(clients, dtype=np.int64)


ANSWERS: Answers[Deployment] = {
    Census: Deployment.census,
    Expect: Deployment.expect,
    Dispatch: Deployment.dispatch,
    Collect: Deployment.collect,
    Settle: Deployment.settle,
    Recall: Deployment.recall,
    Probe: Deployment.probe,
    Score: Deployment.score,
    Evaluate: Deployment.evaluate,
    Record: Deployment.close,
}
