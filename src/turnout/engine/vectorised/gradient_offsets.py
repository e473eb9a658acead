"""A block's gradient offsets k_i = row_i − shared, per slot, formed from the table of rows where they are used."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats
from turnout.engine.vectorised.jobs import Jobs
from turnout.engine.vectorised.scratch import Scratch
from turnout.models.layout import Layout

PIECE_BYTES = 3 << 20  # for each operation thread: what is formed and used at once stays close


class GradientOffsets:
    """The offsets of a block of rows, and what follows them, k_i + s_i Δ_i.

    Slots that are moved at every step are `held`. The one that is not is used once or twice in a round: its offsets
    take as much memory as all its rows, so they are formed a few rows at a time and never written out.
    """

    def __init__(self, layout: Layout, jobs: Jobs, scratch: Scratch, unwritten: int | None) -> None:
        """Form what is held: all slots but `unwritten`."""
        self.jobs, self.scratch, self.slots = jobs, scratch, layout.slots
        self.like = jobs.requests[0].model
        self.stacks = {
            at: self._form(at, slice(0, len(jobs)), self._buffer(f"offset {at}", len(jobs), at))
            for at in range(len(layout.slots))
            if at != unwritten
        }
        self.scale = _scale(jobs)  # None where the next rows are not wanted
        self.next_rows: list[Tensor] = []  # per slot, (rows, size)

    def pieces(self, at: int) -> Iterator[tuple[slice, Tensor]]:
        """Yield the offsets of one slot, some rows at a time; each piece is good until the next is taken."""
        if at in self.stacks:
            yield slice(0, len(self.jobs)), self.stacks[at]
            return
        slot = self.slots[at]
        count, row_bytes = len(self.jobs), (slot.stop - slot.start) * self.like.element_size()
        if self.like.device.type == "cpu":
            count = min(max(1, PIECE_BYTES * torch.get_num_threads() // row_bytes), count)
        buffer = self._buffer("piece of offsets", count, at)
        for begin in range(0, len(self.jobs), count):
            rows = slice(begin, min(begin + count, len(self.jobs)))
            yield rows, self._form(at, rows, buffer[: rows.stop - begin])

    def follow(self, deltas: Sequence[Tensor | None], places: Sequence[Tensor]) -> None:
        """Write k_i + s_i Δ_i of every slot whose change is given; the others are in their places."""
        factor = torch.as_tensor(self.scale, dtype=self.like.dtype, device=self.like.device)[:, None]
        self.next_rows = [place.flatten(1) for place in places]
        for at, (delta, out) in enumerate(zip(deltas, self.next_rows, strict=True)):
            if delta is not None:
                for rows, offset in self.pieces(at):
                    torch.addcmul(offset.flatten(1), delta[rows], factor[rows], out=out[rows])

    def _buffer(self, name: str, rows: int, at: int) -> Tensor:
        slot = self.slots[at]
        return self.scratch.take(name, (rows, slot.stop - slot.start), self.like)

    def _form(self, at: int, rows: slice, out: Tensor) -> Tensor:
        """Write the offsets of these rows to `out` and return it in the slot's shape."""
        slot, owner = self.slots[at], self.jobs.owner[rows]
        for number in np.unique(owner):
            request, mine = self.jobs.requests[number], np.flatnonzero(owner == number)
            assert request.offset is not None
            clients = request.clients[self.jobs.place[rows][mine]]
            if len(mine) == len(owner):
                request.offset.columns(clients, slot.start, out)
            else:
                where = torch.from_numpy(mine).to(out.device)
                out[where] = request.offset.columns(clients, slot.start, torch.empty_like(out[: len(mine)]))
        return out.view(-1, *slot.stored_shape)


def _scale(jobs: Jobs) -> Floats | None:
    """Return s_i of every row; None where the next rows are not wanted."""
    scale = np.zeros(len(jobs))
    for owner in np.unique(jobs.owner):
        wanted, mine = jobs.requests[owner].offset, jobs.owner == owner
        if wanted is None or wanted.scale is None:
            return None
        scale[mine] = wanted.scale[jobs.place[mine]]
    return scale
