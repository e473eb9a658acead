"""Putting blocks together: sums and rows of each request, in an order that does not depend on who was faster."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats
from turnout.engine.vectorised.jobs import Jobs
from turnout.engine.vectorised.stacked_training import BlockResult, OutputBuffers
from turnout.models.layout import Layout
from turnout.requests import Fit, Trained
from turnout.row_table import consecutive, new_rows, put_rows
from turnout.rows import finite_rows, is_finite

SAME_FACTOR = 1e-12  # weights are a multiple of others but for rounding


class Row(NamedTuple):
    """One client's answer."""

    delta: Tensor
    loss: float
    buffers: Tensor | None = None
    extra: Tensor | None = None
    next_row: Tensor | None = None  # what the client remembers from here on
    kept: Mapping[str, Tensor] = {}  # solver state that the client keeps, by entry
    steps: int = 0  # how many were done
    ends: Tensor | None = None  # values after the last step, of the parameters for which they are wanted


class Gather:
    """The answers to a group of Fit requests in the making."""

    def __init__(self, layout: Layout, requests: Sequence[Fit]) -> None:
        self.layout, self.requests = layout, requests
        self.sums: list[Tensor | None] = [None] * len(requests)
        self.buffers: list[Tensor | None] = [None] * len(requests)
        self.rows: list[Tensor | None] = [
            _room(r, r.into, layout.size) if r.coefficients is None else None for r in requests
        ]
        self.next_rows = [_room_for_next_rows(r) for r in requests]
        self.next_sums: list[Tensor | None] = [None] * len(requests)
        weights = [_next_weights(r) for r in requests]
        self.factors = [multiple(w, r.coefficients) for w, r in zip(weights, requests, strict=True)]
        self.next_weights = [w if f is None else None for w, f in zip(weights, self.factors, strict=True)]
        self.balanced = np.array([_is_balanced(r, f) for r, f in zip(requests, self.factors, strict=True)])
        self.extras: list[Tensor | None] = [None] * len(requests)
        self.kept = [{name: _new_rows(r, layout.size, torch.empty) for name in r.kept} for r in requests]
        self.ends = [_room_for_ends(r, layout) for r in requests]
        self.buffer_ends = [_room_for_buffers(r, layout) for r in requests]
        self.making = threading.Lock()
        self.losses = [np.full(len(r.clients), np.nan) for r in requests]
        self.finite = [np.ones(len(r.clients), dtype=bool) for r in requests]
        self.norms: list[Floats | None] = [np.zeros(len(r.clients)) if r.wants_norms else None for r in requests]

    def extra_rows(self, owner: int) -> Tensor:
        """Return the table of a request's second rows, made when the first comes; several workers may ask at once."""
        with self.making:
            current = self.extras[owner]
            if current is None:
                current = self.extras[owner] = _new_rows(self.requests[owner], self.layout.size, torch.zeros)
        return current

    def part(self) -> "Part":
        """Return a place for one block or worker to add to, without locks."""
        return Part(self)

    def merge(self, part: "Part") -> None:
        """Add a part's sums; parts are merged in a fixed order."""
        for at, value in part.sums.items():
            current = self.sums[at]
            self.sums[at] = value if current is None else current.add_(value)
        for at, value in part.buffers.items():
            current = self.buffers[at]
            self.buffers[at] = value if current is None else current.add_(value)
        for at, value in part.next_sums.items():
            current = self.next_sums[at]
            self.next_sums[at] = value if current is None else current.add_(value)

    def answers(self) -> list[Trained]:
        """Return the finished answers."""
        return [
            Trained(
                clients=request.clients,
                steps=request.steps,
                loss=self.losses[at],
                finite=self.finite[at],
                reduced=self._sum(at),
                delta=self.rows[at],
                extra=self.extras[at],
                square_norms=self.norms[at],
                buffers=self.buffers[at],
                next_rows=self.next_rows[at],
                next_sum=self._next_sum(at),
                kept=self.kept[at],
                ends=self.ends[at],
                buffer_ends=self.buffer_ends[at],
            )
            for at, request in enumerate(self.requests)
        ]

    def _sum(self, at: int) -> Tensor | None:
        request, total = self.requests[at], self.sums[at]
        nobody_looked = total is None and request.coefficients is not None
        return torch.zeros_like(request.model) if nobody_looked else total

    def _next_sum(self, at: int) -> Tensor | None:
        factor, total = self.factors[at], self.sums[at]
        return self.next_sums[at] if factor is None or total is None else total * factor


class Part:
    """What one block or worker came to."""

    def __init__(self, gather: Gather) -> None:
        self.gather = gather
        self.sums: dict[int, Tensor] = {}
        self.buffers: dict[int, Tensor] = {}
        self.next_sums: dict[int, Tensor] = {}

    def output_buffers(self, jobs: Jobs) -> OutputBuffers:
        """Return where a block may write its answers at once: where its rows are side by side in one request."""
        run = consecutive(jobs.place) if (jobs.owner == jobs.owner[0]).all() else None
        if run is None:
            return OutputBuffers()
        gather, owner = self.gather, jobs.owner[0]
        rooms = (gather.rows[owner], gather.next_rows[owner], gather.ends[owner])
        return OutputBuffers(*(None if room is None else room[run] for room in rooms))

    def add_block(self, block: BlockResult) -> None:
        """Take in the rows of a block, which may belong to several requests."""
        gather, jobs = self.gather, block.jobs
        owners = np.unique(jobs.owner)
        for owner in owners:
            mine = slice(None) if len(owners) == 1 else np.flatnonzero(jobs.owner == owner)
            gather.losses[owner][jobs.place[mine]] = block.losses[mine]
        self._sum(block, owners)
        for owner in owners:
            mine = np.flatnonzero(jobs.owner == owner)
            if block.buffers is not None:
                weights = torch.as_tensor(gather.requests[owner].buffer_weights[jobs.place[mine]]).to(block.buffers)
                self.buffers[int(owner)] = weights @ block.buffers[torch.from_numpy(mine)]
                if (ends := gather.buffer_ends[owner]) is not None:
                    ends[torch.from_numpy(jobs.place[mine])] = block.buffers[torch.from_numpy(mine)]
            self._keep(block, int(owner), mine)

    def _sum(self, block: BlockResult, owners: np.ndarray) -> None:
        """Work out every weighted sum that is wanted of these rows in one go."""
        gather, jobs = self.gather, block.jobs
        wanted = [
            (sums, int(owner), weights)
            for owner in owners
            for sums, weights in (
                (self.sums, gather.requests[owner].coefficients),
                (self.next_sums, gather.next_weights[owner]),
            )
            if weights is not None
        ]
        if not wanted or not block.has_changes:
            return
        table = np.zeros((len(wanted), len(jobs)))
        for at, (_, owner, weights) in enumerate(wanted):
            mine = jobs.owner == owner
            table[at, mine] = weights[jobs.place[mine]]
        model = gather.requests[0].model
        left = torch.as_tensor(table, dtype=model.dtype, device=model.device)
        total = left.new_empty(len(wanted), gather.layout.size)
        offset_mask = left.new_tensor(~gather.balanced[jobs.owner]) if gather.balanced.any() else None
        for at, slot in enumerate(gather.layout.slots):
            block.add_up(left, at, total[:, slot.start : slot.stop], offset_mask)
        for at, (sums, owner, _) in enumerate(wanted):
            sums[owner] = total[at]

    def _keep(self, block: BlockResult, owner: int, mine: np.ndarray) -> None:
        """Keep rows, norms and whether each row is finite, as far as the request wants them."""
        gather, place = self.gather, block.jobs.place[mine]
        norms, ends = gather.norms[owner], gather.ends[owner]
        everything = len(mine) == len(block.jobs)
        pick = torch.from_numpy(mine)
        if ends is not None and block.ends is not None and not _is_inside(block.ends, ends):
            put_rows(ends, place, block.ends if everything else block.ends[pick])
        next_part = None if block.offsets is None else block.offsets.next_rows
        for rows, parts in (
            (gather.rows[owner], block.deltas),
            (gather.extra_rows(owner) if block.extras is not None else None, block.extras),
            (gather.next_rows[owner], next_part),
            *((rows, block.kept[name]) for name, rows in gather.kept[owner].items()),
        ):
            if rows is None or parts is None:
                continue
            run, where = consecutive(place), torch.from_numpy(place).to(rows.device)
            for slot, part in zip(gather.layout.slots, parts, strict=True):
                assert part is not None
                mine_only = part if everything else part[pick]
                if run is None:
                    rows[:, slot.start : slot.stop].index_copy_(0, where, mine_only)
                elif (there := rows[run, slot.start : slot.stop]).data_ptr() != part.data_ptr():  # not written at once
                    there.copy_(mine_only)
        summed = self.sums.get(owner)  # rows that are sent are looked at by whoever takes them
        if norms is None and block.has_changes and (summed is None or is_finite(summed)):
            return
        indicators = [stack if everything else stack[pick] for stack in block.finite_indicators()]
        if norms is None:
            gather.finite[owner][place] = finite_rows(indicators)
            return
        lengths = [torch.linalg.vector_norm(stack, dim=1) for stack in indicators]
        values = torch.stack(lengths).double().square().sum(0).cpu().numpy()
        gather.finite[owner][place] = np.isfinite(values)
        norms[place] = values

    def add_row(self, owner: int, place: int, row: "Row") -> None:
        """Take in one client's change."""
        gather, request = self.gather, self.gather.requests[owner]
        delta, loss, buffers = row.delta, row.loss, row.buffers
        if row.extra is not None:
            gather.extra_rows(owner)[place] = row.extra
        gather.losses[owner][place] = loss
        square = float(torch.linalg.vecdot(delta, delta))
        gather.finite[owner][place] = np.isfinite(square) and (row.next_row is None or is_finite(row.next_row))
        norms, rows = gather.norms[owner], gather.rows[owner]
        if norms is not None:
            norms[place] = square
        if rows is not None:
            rows[place] = delta
        if request.coefficients is not None:
            _accumulate(self.sums, owner, delta, float(request.coefficients[place]))
        for name, kept in row.kept.items():
            gather.kept[owner][name][place] = kept
        ends = gather.ends[owner]
        if ends is not None and row.ends is not None:
            ends[place] = row.ends
        current = gather.next_rows[owner]
        if current is not None:
            weights = gather.next_weights[owner]
            assert row.next_row is not None
            current[place] = row.next_row
            if weights is not None:
                _accumulate(self.next_sums, owner, delta, float(weights[place]))
        if buffers is not None:
            _accumulate(self.buffers, owner, buffers, float(request.buffer_weights[place]))
            if (buffer_ends := gather.buffer_ends[owner]) is not None:
                buffer_ends[place] = buffers


def multiple(weights: Floats | None, of: Floats | None) -> float | None:
    """Return the factor by which some weights are a multiple of others; None where they are none of them.

    Where clients do equal work, the sums of their changes and of their next rows differ by a factor alone.
    """
    if weights is None or of is None or not of.any():
        return None
    heaviest = int(np.argmax(abs(of)))
    factor = float(weights[heaviest] / of[heaviest])
    return factor if np.allclose(weights, of * factor, rtol=SAME_FACTOR, atol=0.0) else None


def _is_balanced(request: Fit, factor: float | None) -> bool:
    """Whether Σ w_i k_i/s_i over a request's clients is nothing, so that Σ w_i Δ_i = Σ w_i c_i⁺/s_i.

    Where w_i/s_i is a multiple of p_i, it is that multiple of Σ p_i (c_i − c); and c = Σ p_i c_i where all who count
    are here. It spares a look at every offset.
    """
    weights = None if request.offset is None else request.offset.weights
    return factor is not None and weights is not None and abs(float(weights.sum()) - 1.0) < SAME_FACTOR


def _accumulate(sums: dict[int, Tensor], owner: int, value: Tensor, weight: float) -> None:
    if owner in sums:
        sums[owner].add_(value, alpha=weight)
    else:
        sums[owner] = value * weight


def _room(request: Fit, into: Tensor | None, size: int) -> Tensor:
    """Return memory for one row per client."""
    return _new_rows(request, size, torch.empty) if into is None else into[: len(request.clients)]


def _new_rows(request: Fit, size: int, make: Callable[..., Tensor]) -> Tensor:
    return new_rows(len(request.clients), size, request.model.dtype, request.model.device, make)


def _is_inside(rows: Tensor, table: Tensor) -> bool:
    """Whether rows were written to their table at once."""
    return rows.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()


def _room_for_ends(request: Fit, layout: Layout) -> Tensor | None:
    """Return memory for the values after the last step, where they are wanted."""
    count = len(layout.columns(request.wants_ends))
    return _room(request, request.ends_into, count) if count else None


def _room_for_buffers(request: Fit, layout: Layout) -> Tensor | None:
    """Return memory for each client's buffers after the last step, where they are wanted."""
    return _new_rows(request, layout.buffer_size, torch.empty) if request.wants_buffers and layout.buffers else None


def _room_for_next_rows(request: Fit) -> Tensor | None:
    """Return memory for the next rows, where they are wanted."""
    offset = request.offset
    return None if offset is None or offset.scale is None else offset.table.spare(len(request.clients))


def _next_weights(request: Fit) -> Floats | None:
    """Return p_i s_i, where the next rows are wanted."""
    offset = request.offset
    if offset is None or offset.scale is None or offset.weights is None:
        return None
    return offset.weights * offset.scale
