"""How parcels travel: a small interface with two implementations, Flower's Grid and devices in this process."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from turnout.world.deployment.parcel import Parcel


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What came back for one message."""

    ticket: str  # which message it answers
    parcel: Parcel | None  # None: there is none, and `reason` says why
    reason: str = ""
    is_lost: bool = False  # nothing will ever come: the device is gone, or the message is too old


class Transport(Protocol):
    """Carries parcels to devices, and their answers back. A device works on one message at a time."""

    def nodes(self) -> Mapping[int, str]:
        """Return the devices that are connected, by number, each with a mark that changes when it connects anew."""
        ...

    def departed(self) -> Set[int]:
        """Return the devices that said goodbye and have not come back; one that is merely silent is not among them."""
        ...

    def push(self, parcels: Mapping[int, Parcel], seconds: float) -> dict[int, str]:
        """Send one parcel to each device, good for so many seconds; return the tickets of those that were taken."""
        ...

    def pull(self, tickets: Sequence[str]) -> list[Reply]:
        """Return what has come back for these tickets, each at most once; does not wait."""
        ...
