"""The server's mailbox: which devices are connected and known, which messages are open, and what came back.

A device is known once it has answered a hello. One that connects anew, or says goodbye, has lost what it was working
on, so its open messages will never be answered. An answer counts once: what comes for a message that is closed is
noted, and not used.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from turnout.array_types import Ids
from turnout.world.deployment.parcel import BadParcelError, Parcel
from turnout.world.deployment.transport import Reply, Transport

MOST_EXAMPLES, MOST_CLASSES = 10**12, 10**6
TYPES = ("float32", "float64", "int64", "uint8")  # of inputs
MOST_NOTES = 50
HELLO_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device says of itself."""

    num_examples: int
    holdout: int
    shape: tuple[int, ...]
    type: str
    target_shape: tuple[int, ...]
    num_classes: int | None
    allows: frozenset[str]
    label_counts: Ids | None = None

    @classmethod
    def of(cls, parcel: Parcel) -> "DeviceFacts":
        """Return the facts of an answer to a hello; raise BadParcelError where they cannot be."""
        count, classes = parcel.whole("num_examples"), parcel.whole("num_classes")
        if not 0 < count <= MOST_EXAMPLES or not 0 <= parcel.whole("holdout") <= MOST_EXAMPLES:
            raise BadParcelError(f"reports {count} samples")
        allows, kind = parcel.values.get("allows"), parcel.said("type")
        if not isinstance(allows, list) or kind not in TYPES or not 0 <= classes < MOST_CLASSES:
            raise BadParcelError("reports no kind of data")
        labels = parcel.arrays.get("labels")
        if labels is not None and (labels.shape != (classes,) or labels.dtype != np.int64 or (labels < 0).any()):
            raise BadParcelError("reports no counts of labels")
        return cls(
            num_examples=count,
            holdout=parcel.whole("holdout"),
            shape=_shape(parcel, "shape"),
            type=kind,
            target_shape=_shape(parcel, "target_shape"),
            num_classes=classes or None,
            allows=frozenset(map(str, allows)),
            label_counts=labels,
        )

    @property
    def form(self) -> tuple[object, ...]:
        """What must be the same for all devices."""
        return self.shape, self.type, self.target_shape, self.num_classes


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """One message that is open."""

    device: int
    kind: str
    round: int
    expires: float
    asked_steps: int = 0  # where the message asks for training


@dataclass(slots=True)
class Mailbox:
    """Messages to and from devices."""

    transport: Transport
    clock: Callable[[], float] = time.monotonic
    poll_seconds: float = 0.2
    facts: dict[int, DeviceFacts] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)  # devices that cannot take part, and why
    last_seen: dict[int, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # for the next record
    _marks: dict[int, str] = field(default_factory=dict)
    _open: dict[str, Ticket] = field(default_factory=dict)
    _came: deque[tuple[Ticket, Reply]] = field(default_factory=deque)

    def note(self, text: str) -> None:
        """Keep an event for the next record."""
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    def taken_notes(self) -> list[str]:
        """Return the events since the last record."""
        notes, self.notes = self.notes, []
        return notes

    def connected(self) -> list[int]:
        """Return the devices that are connected and known, ascending."""
        nodes = self._greet()
        return sorted(device for device in nodes if device in self.facts and device not in self.refused)

    def departed(self) -> set[int]:
        """Return the devices that said goodbye and have not come back."""
        return set(self.transport.departed())

    def busy(self) -> set[int]:
        """Return the devices that have work which they have not answered."""
        return {ticket.device for ticket in self._open.values() if ticket.kind == "train"}

    def wait_for(self, least: int, seconds: float, *, idle: bool = False) -> list[int]:
        """Return the connected devices, or the idle ones, once there are so many, or after so many seconds."""
        end = self.clock() + seconds
        while True:
            self.receive()
            busy = self.busy() if idle else set()
            found = [device for device in self.connected() if device not in busy]
            if len(found) >= least or self.clock() >= end:
                return found
            self.pause()

    def send(self, parcels: Mapping[int, Parcel], seconds: float, round: int) -> dict[int, str]:
        """Send parcels; return the tickets of the messages that were taken."""
        tickets = self.transport.push(parcels, seconds) if parcels else {}
        for device, ticket in tickets.items():
            steps = parcels[device].values.get("steps", 0)
            self._open[ticket] = Ticket(device, parcels[device].kind, round, self.clock() + seconds, steps)
        for device in sorted(set(parcels) - set(tickets)):
            self.note(f"client {device}: the message to it was not taken; it may be too large")
        return tickets

    def ask(self, parcels: Mapping[int, Parcel], seconds: float, round: int) -> dict[int, Parcel]:
        """Send parcels and wait for the answers; whoever refuses or is late is left out, and noted."""
        tickets = set(self.send(parcels, seconds, round).values())
        end, found = self.clock() + seconds, {}
        kinds = {parcel.kind for parcel in parcels.values()}
        waiting = {ticket: self._open[ticket] for ticket in tickets}
        while waiting and self.clock() < end:
            self.receive()
            for ticket, reply in [pair for pair in self._came if pair[0] in waiting.values()]:
                self._came.remove((ticket, reply))
                waiting = {name: open_ for name, open_ in waiting.items() if open_ is not ticket}
                parcel = reply.parcel
                if parcel is not None and parcel.kind in kinds:
                    found[ticket.device] = parcel
                else:
                    self.note(f"client {ticket.device}: {reason_of(reply)}")
            if waiting:
                self.pause()
        for name, ticket in waiting.items():
            self._open.pop(name, None)
            self.note(f"client {ticket.device}: no answer to {ticket.kind} in {seconds:.0f} s")
        return found

    def next_update(self) -> tuple[Ticket, Reply] | None:
        """Return one update that has come, oldest first; None if there is none."""
        if not self._came:
            self.receive()
        return self._came.popleft() if self._came else None

    def pause(self) -> None:
        """Wait a little before the next look."""
        time.sleep(self.poll_seconds)

    def receive(self) -> None:
        """Take in what has come, and close messages that are too old."""
        self._greet()
        for reply in self.transport.pull(list(self._open)):
            ticket = self._open.pop(reply.ticket, None)
            if ticket is None:
                self.note(f"an answer to a message that is closed was not used ({reply.ticket[:20]!r})")
            elif ticket.kind == "hello":
                self._introduced(ticket, reply)
            else:
                self._came.append((ticket, reply))
        now = self.clock()
        for name in [name for name, ticket in self._open.items() if ticket.expires <= now]:
            ticket = self._open.pop(name)
            if ticket.kind != "hello":
                self._came.append((ticket, Reply(name, None, "no answer came in time", is_lost=True)))
            else:
                self._marks.pop(ticket.device, None)

    def _greet(self) -> Mapping[int, str]:
        """Say hello to devices that have just connected; what they worked on before is lost."""
        nodes, now = self.transport.nodes(), self.clock()
        self.last_seen |= dict.fromkeys(nodes, now)
        fresh = [device for device, mark in nodes.items() if self._marks.get(device) != mark]
        for device in fresh:
            self._lose(device, "the device connected anew")
        for device in self.transport.departed():
            self._lose(device, "the device said goodbye")
        new = [device for device in fresh if device in self._marks or device not in self.facts]  # not enrolled before
        self._marks |= {device: nodes[device] for device in fresh}
        pushed = self.transport.push(dict.fromkeys(new, Parcel("hello")), HELLO_SECONDS) if new else {}
        self._open |= {name: Ticket(device, "hello", 0, now + HELLO_SECONDS) for device, name in pushed.items()}
        return nodes

    def _lose(self, device: int, why: str) -> None:
        """Close a device's messages, which will never be answered."""
        for name in [name for name, ticket in self._open.items() if ticket.device == device]:
            ticket = self._open.pop(name)
            if ticket.kind != "hello":
                self._came.append((ticket, Reply(name, None, why, is_lost=True)))

    def _introduced(self, ticket: Ticket, reply: Reply) -> None:
        """Take over what a device says of itself."""
        device, known = ticket.device, next(iter(self.facts.values()), None)
        try:
            if reply.parcel is None or reply.parcel.kind != "hello":
                raise BadParcelError(reason_of(reply))
            facts = DeviceFacts.of(reply.parcel)
            if known is not None and facts.form != known.form:
                raise BadParcelError(f"its samples have form {facts.form}, and those of others {known.form}")
        except BadParcelError as error:
            self.refused[device] = str(error)
            self.note(f"client {device} cannot take part: {error}")
            return
        self.refused.pop(device, None)
        self.facts[device] = facts


def _shape(parcel: Parcel, name: str) -> tuple[int, ...]:
    value = parcel.values.get(name)
    if not isinstance(value, list) or len(value) > 8 or not all(type(n) is int and 0 < n < 2**31 for n in value):
        raise BadParcelError("reports no shape of a sample")
    return tuple(value)


def reason_of(reply: Reply) -> str:
    """Return why an answer is none."""
    if reply.parcel is None:
        return reply.reason
    if reply.parcel.kind == "refused":
        return reply.parcel.said("reason")
    return f"answered with {reply.parcel.kind[:20]!r}"
