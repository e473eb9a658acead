"""Work that was handed out in a simulation: what the fleet makes of it, and how far clients got."""

from dataclasses import dataclass, replace

import numpy as np

from turnout.array_types import Ids
from turnout.ids import is_among
from turnout.orders import Order
from turnout.progress import Progress
from turnout.protocols import Timing
from turnout.world.simulation.in_flight import InFlight


@dataclass(slots=True)
class Dispatched:
    """Work that was handed out, and what the fleet makes of it."""

    order: Order
    done: Ids  # steps that each client of the order gets done; 0 is a client that never returns
    timing: Timing | None = None
    progress: Progress | None = None  # of everyone asked, where the server waits
    sequence: Ids | None = None
    most_at_work: int = 0
    is_counted: bool = False  # whether the time that the server waits was added to the round's

    def of(self, order: Order) -> "Dispatched":
        """Return the part of it that an order for one model is; the whole order is all of it."""
        if order.clients is self.order.clients:
            return replace(self, order=order)
        here = is_among(self.order.clients, order.clients)
        late = None if self.timing is None else replace(self.timing, late=self.timing.late[here])
        return replace(self, order=order, done=self.done[here], timing=late)


def progress_of(clients: Ids, done: Ids, timing: Timing | None) -> Progress:
    """Return how far clients got that would do so many steps if nobody stopped them."""
    if timing is None:
        steps, seconds = done, None
    elif timing.progress is None:
        steps, seconds = np.where(timing.late, 0, np.minimum(timing.done, done)), timing.seconds
    else:
        steps, seconds = timing.progress, timing.seconds
    unknown = np.full(len(clients), np.nan)
    return Progress(clients=clients, steps=steps, seconds=unknown if seconds is None else seconds, cut_off=steps < done)


def progress_landed(flight: InFlight) -> Progress:
    """Return the progress of clients whose work is back: nobody stopped them."""
    return Progress(
        clients=flight.clients,
        steps=flight.steps,
        seconds=flight.columns["seconds"],
        cut_off=np.zeros(len(flight.clients), dtype=bool),
    )
