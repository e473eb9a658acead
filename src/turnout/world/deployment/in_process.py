"""Devices in this process: each has a thread and a queue, and parcels pass through the same bytes as on a network.

It is the transport of a trial run before devices exist, and of the tests of the deployment's own logic.
"""

import itertools
import threading
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from turnout.world.deployment.device import Device
from turnout.world.deployment.parcel import BadParcelError, Parcel
from turnout.world.deployment.transport import Reply


class InProcess:
    """Runs devices in threads, by default one after another."""

    def __init__(self, devices: Mapping[int, Device], workers: int = 1) -> None:
        self.devices = dict(devices)
        self.gone: set[int] = set()
        self.pool = ThreadPoolExecutor(workers, "device")
        self.count = itertools.count()
        self.work: dict[str, Future[Reply]] = {}
        self.lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(wait=True, cancel_futures=True)

    def nodes(self) -> Mapping[int, str]:
        """Return the devices that are there."""
        with self.lock:
            return {number: str(id(device)) for number, device in self.devices.items()}

    def connect(self, number: int, device: Device) -> None:
        """Add a device, or put a new one in the place of another."""
        with self.lock:
            self.devices[number] = device

    def disconnect(self, number: int, *, says_goodbye: bool = False) -> None:
        """Take a device away."""
        with self.lock:
            del self.devices[number]
            self.gone |= {number} if says_goodbye else set()

    def departed(self) -> Set[int]:
        """Return the devices that said goodbye."""
        with self.lock:
            return self.gone - self.devices.keys()

    def push(self, parcels: Mapping[int, Parcel], seconds: float) -> dict[int, str]:
        """Queue the parcels, lowest device first."""
        tickets = {}
        for number in sorted(set(parcels) & set(self.nodes())):
            ticket = f"message {next(self.count)}"
            self.work[ticket] = self.pool.submit(_answered, self.devices[number], parcels[number], ticket)
            tickets[number] = ticket
        return tickets

    def pull(self, tickets: Sequence[str]) -> list[Reply]:
        """Return what is done, in the order in which it was queued."""
        done = [ticket for ticket in tickets if ticket in self.work and self.work[ticket].done()]
        return [self.work.pop(ticket).result() for ticket in done]


def _answered(device: Device, parcel: Parcel, ticket: str) -> Reply:
    """Return a device's answer after both went through bytes."""
    try:
        answer = device.answer(_by_wire(parcel))
        return Reply(ticket, _by_wire(answer))
    except BadParcelError as error:
        return Reply(ticket, None, str(error))
    except Exception as error:  # a device that fails is its own trouble, not the server's
        return Reply(ticket, None, f"the device failed: {type(error).__name__}")


def _by_wire(parcel: Parcel) -> Parcel:
    return Parcel.received(parcel.kind, parcel.text(), parcel.wires())
