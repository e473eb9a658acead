"""Flower's Grid as a transport. A device is the node whose registered public key is in the deployment's folder.

What Flower does that this works around:

- a reply is deleted when it is pulled, and so is an instruction whose node is offline: only online nodes are polled;
- an instruction that a node was handed is never handed out again: a node that connects anew gets a new one;
- a message that is too large is refused with an empty list or an empty id, and no error;
- only online nodes are listed. A killed node is listed until the time until which its last heartbeat was good, so one
  that disappears before that time has said goodbye.
"""

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from turnout.world.deployment.parcel import BadParcelError, Parcel, Wire
from turnout.world.deployment.transport import Reply

RAW = "turnout.raw"  # serialisation of an array: its bytes, in the order of C
MARGIN_SECONDS = 5.0  # a node that is online for less may be gone while it is polled
MESSAGE_TYPE = "query.turnout"
LOST = (3, 4, 5)  # Flower's codes for a message, a reply or a node that is not available


@dataclass(slots=True)
class FlowerGrid:
    """Messages through a SuperLink."""

    grid: Any  # flwr.serverapp.Grid
    device_of_key: Mapping[bytes, int]  # public key in PEM → number of the device
    _node_of: dict[int, int] = field(default_factory=dict)  # device → node
    _good_until: dict[int, float] = field(default_factory=dict)  # device → until when its last heartbeat is good
    _departed: set[int] = field(default_factory=set)
    _sent: dict[str, tuple[int, float]] = field(default_factory=dict)  # message → node, when it expires

    def nodes(self) -> Mapping[int, str]:
        """Return the devices that are connected."""
        marks, now = {}, time.time()
        for node in self.grid.get_nodes():
            device = self.device_of_key.get(bytes(node.public_key).strip())
            if device is not None and node.online_until > now:
                self._node_of[device], self._good_until[device] = node.node_id, node.online_until
                marks[device] = f"{node.node_id} {node.last_activated_at}"
        missing = self._good_until.keys() - marks.keys()
        self._departed |= {device for device in missing if self._good_until.pop(device) > now + MARGIN_SECONDS}
        self._departed -= marks.keys()
        return marks

    def departed(self) -> Set[int]:
        """Return the devices that said goodbye."""
        return frozenset(self._departed)

    def push(self, parcels: Mapping[int, Parcel], seconds: float) -> dict[int, str]:
        """Send one message to each device."""
        there = [device for device in sorted(parcels) if device in self._node_of]
        shared: dict[int, Array] = {}  # arrays that several messages carry are encoded, and sent, once
        messages = [
            Message(to_record(parcels[device], shared), self._node_of[device], MESSAGE_TYPE, ttl=seconds)
            for device in there
        ]
        taken = list(self.grid.push_messages(messages)) if messages else []
        ids = {device: name for device, name in zip(there, taken, strict=False) if name}
        self._sent |= {name: (self._node_of[device], time.time() + seconds) for device, name in ids.items()}
        return ids

    def pull(self, tickets: Sequence[str]) -> list[Reply]:
        """Return what has come back."""
        now = time.time()
        online = {node.node_id for node in self.grid.get_nodes() if node.online_until > now + MARGIN_SECONDS}
        self._sent = {name: sent for name, sent in self._sent.items() if name in set(tickets)}
        ask = [name for name in tickets if name in self._sent and self._is_due(name, online, now)]
        return [_reply(message) for message in self.grid.pull_messages(ask)] if ask else []

    def _is_due(self, name: str, online: set[int], now: float) -> bool:
        node, expires = self._sent[name]
        return node in online or expires < now


def to_record(parcel: Parcel, shared: dict[int, Array] | None = None) -> RecordDict:
    """Return a parcel as the content of a Flower message."""
    shared = {} if shared is None else shared
    arrays = {}
    for name, array in parcel.arrays.items():
        if id(array) not in shared:
            wire = Parcel("", {}, {name: array}).wires()[name]
            shared[id(array)] = Array(dtype=wire.dtype, shape=wire.shape, stype=RAW, data=wire.data)
        arrays[name] = shared[id(array)]
    content = ConfigRecord({"kind": parcel.kind, "values": parcel.text()})
    return RecordDict({"parcel": content, "arrays": ArrayRecord(arrays)})


def from_record(content: RecordDict) -> Parcel:
    """Return the parcel of a Flower message; raise BadParcelError if it has none."""
    config, arrays = content.get("parcel"), content.get("arrays")
    if not isinstance(config, ConfigRecord) or not isinstance(arrays, ArrayRecord) or len(content) != 2:
        raise BadParcelError("the message is none of turnout's")
    kind, text = config.get("kind"), config.get("values")
    if not isinstance(kind, str) or not isinstance(text, str):
        raise BadParcelError("the message is none of turnout's")
    if any(array.stype != RAW for array in arrays.values()):
        raise BadParcelError("the message has arrays that are not raw bytes")
    return Parcel.received(kind, text, {k: Wire(a.dtype, tuple(a.shape), a.data) for k, a in arrays.items()})


def _reply(message: Message) -> Reply:
    ticket = message.metadata.reply_to_message_id
    if message.has_error():
        code, reason = message.error.code, str(message.error.reason).splitlines() or [""]
        return Reply(ticket, None, f"Flower reports error {code}: {reason[0][:200]}", is_lost=code in LOST)
    try:
        return Reply(ticket, from_record(message.content))
    except (BadParcelError, KeyError, TypeError, ValueError) as error:
        return Reply(ticket, None, str(error)[:200])
