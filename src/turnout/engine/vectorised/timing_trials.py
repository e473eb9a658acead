"""Small pieces of a group's work, done one way after another, to see how long each takes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from turnout.data.federation import Slab
from turnout.engine.vectorised.autotune import Execution
from turnout.requests import Fit, Offset

WHOLE_BYTES = 64 << 20  # of all rows together: up to here a step of everyone is a small piece


class Rehearsal:
    """What a group asks for, in pieces. Each is of the clients that come next, as in a round.

    The same clients again would still be in cache, the fewer of them the more, and ways that take few at a time would
    look better than they are.
    """

    def __init__(
        self,
        row_bytes: int,
        requests: Sequence[Fit],
        slabs: Sequence[Slab],
        train: Callable[[list[Fit], list[Slab], Execution], object],
    ) -> None:
        self.is_whole = row_bytes * sum(len(r.clients) for r in requests) < WHOLE_BYTES
        self.requests, self.slabs = (requests, slabs) if self.is_whole else (requests[:1], slabs[:1])
        self.train, self.next = train, 0

    def seconds(self, execution: Execution, steps: int) -> float:
        """Return the seconds per client-step of a piece of so many steps, done this way."""
        rows = slice(None) if self.is_whole else self._following(execution.block * execution.workers)
        some = [_part(request, rows, steps) for request in self.requests]
        pieces = [slab._replace(starts=slab.starts[rows], sizes=slab.sizes[rows]) for slab in self.slabs]
        started = time.perf_counter()
        self.train(some, pieces, execution)
        return (time.perf_counter() - started) / sum(int(r.steps.sum()) for r in some)

    def _following(self, count: int) -> slice:
        """Return the rows after the last ones; from the first again where there are not as many."""
        begin = self.next if self.next + count <= len(self.requests[0].clients) else 0
        self.next = begin + count
        return slice(begin, begin + count)


def _part(request: Fit, rows: slice, steps: int) -> Fit:
    """Return a request for some rows and at most so many steps."""
    return replace(
        request,
        clients=request.clients[rows],
        steps=np.minimum(request.steps[rows], steps),
        settings={name: values[rows] for name, values in request.settings.items()},
        coefficients=None if request.coefficients is None else request.coefficients[rows],
        buffer_weights=request.buffer_weights[rows],
        offset=None if request.offset is None else _part_of_offset(request.offset, rows),
    )


def _part_of_offset(offset: Offset, rows: slice) -> Offset:
    if offset.scale is None or offset.weights is None:
        return offset
    return replace(offset, scale=offset.scale[rows], weights=offset.weights[rows])
