"""Stacked training: a block of clients, one row each, moved step by step together.

Rows are sorted by how many steps they do, so that finished rows drop off the end of the block and no work is wasted,
and then by how many samples a step takes, so that little is padded.
A block may hold rows of several runs: each starts from its own run's model and is summed into its own run's result.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.engine.vectorised.gradient_offsets import GradientOffsets
from turnout.engine.vectorised.jobs import Jobs
from turnout.engine.vectorised.layers import Step
from turnout.engine.vectorised.lazy_first_layer import FirstLayer, mixes, pays
from turnout.engine.vectorised.loss_accumulator import LossAccumulator
from turnout.engine.vectorised.lowering import Batch, Lowered, Program
from turnout.engine.vectorised.mlp import Dense
from turnout.engine.vectorised.optimizers import Collected, FusedSGD, RowSettings, is_fused, restore
from turnout.engine.vectorised.scratch import Scratch
from turnout.engine.watch import Watch
from turnout.local.batches import Batches, draw_batches
from turnout.models.layout import Layout

GATHER_BYTES = 16 << 20  # samples of as many steps as fit are gathered in one go


@dataclass(frozen=True, slots=True)
class OutputBuffers:
    """Where a block's answers go: memory of their own, or None where they are to be left in the scratch."""

    rows: Tensor | None = None  # changes, (rows, size)
    next_rows: Tensor | None = None  # what clients remember from here on, (rows, size)
    ends: Tensor | None = None  # values after the last step, of the parameters for which they are wanted


@dataclass(slots=True)
class BlockResult:
    """What a block came to: trained rows as per-slot stacks of changes, and facts."""

    jobs: Jobs
    deltas: list[Tensor | None]  # per slot, (rows, size); None where the next rows or the ends say it all
    extras: list[Tensor] | None  # second rows, where the solver sends them
    losses: Floats
    offsets: GradientOffsets | None  # where the next rows are wanted
    kept: dict[str, list[Tensor]]  # solver state that clients keep, by entry: per slot, (rows, size)
    buffers: Tensor | None  # the module's buffers after the last step, (rows, size)
    ends: Tensor | None = None  # values after the last step, of the parameters for which they are wanted

    @property
    def has_changes(self) -> bool:
        """Whether anything tells of the changes; False where values after the last step are all that anyone wants."""
        return self.offsets is not None or self.deltas[0] is not None

    def finite_indicators(self) -> list[Tensor]:
        """Return stacks that are finite where the change is: its slots, or what says it all in their place."""
        if not self.has_changes:
            assert self.ends is not None
            return [self.ends]
        return [self._next_rows(at) if delta is None else delta for at, delta in enumerate(self.deltas)]

    def add_up(self, left: Tensor, at: int, out: Tensor, offset_mask: Tensor | None = None) -> None:
        """Write left·Δ of one slot to `out`; `felt` is 0 for rows of runs whose Σ k_i, so weighed, is nothing."""
        delta = self.deltas[at]
        if delta is not None:
            torch.mm(left, delta, out=out)
            return
        assert self.offsets is not None
        over = left / torch.as_tensor(self.offsets.scale, dtype=left.dtype, device=left.device)
        torch.mm(over, self._next_rows(at), out=out)  # Δ_i = (c_i⁺ − k_i) / s_i
        if offset_mask is None or offset_mask.any():
            weighed = over if offset_mask is None else over * offset_mask
            for rows, offset in self.offsets.pieces(at):
                out.addmm_(weighed[:, rows], offset.flatten(1), alpha=-1.0)

    def _next_rows(self, at: int) -> Tensor:
        assert self.offsets is not None
        return self.offsets.next_rows[at]


def train_block(
    program: Program,
    layout: Layout,
    jobs: Jobs,
    scratch: Scratch,
    outputs: OutputBuffers,
    watch: Watch,
    unwritten: int | None,
) -> BlockResult:
    """Fit a block of rows and return what they came to, which is good until the scratch is used again.

    The slot `unwritten`, the weights of a dense network's first layer, is written at the end only.
    """
    local, rows, anchors = jobs.requests[0].local, len(jobs), _models(layout, jobs)
    bases = anchors if jobs.requests[0].starts is None else _starts(layout, jobs)
    anchors = bases if jobs.requests[0].own_models else anchors
    offsets = None if jobs.requests[0].offset is None else GradientOffsets(layout, jobs, scratch, unwritten)
    stacks = None if offsets is None else offsets.stacks
    deferred = _deferred(program, jobs, bases, anchors, offsets, scratch, unwritten)
    params = _stacks(layout, rows, None, "parameter", scratch, bases[0])  # small and close: they are used often
    for at, (param, base) in enumerate(zip(params, bases, strict=True)):
        if at != unwritten:
            param.copy_(base)
    settings, first = RowSettings(jobs.settings, jobs.requests[0].model), jobs.requests[0]
    frozen, private = (layout.places(names) for names in (first.frozen, first.private))
    sink: FusedSGD | Collected
    if is_fused(local):
        sink = FusedSGD(settings, params, anchors, stacks, scratch, unwritten, frozen)
    else:
        sink = Collected(local, settings, params, anchors, stacks, frozen)
        for name in jobs.requests[0].kept:
            kept_rows = jobs.rows_of([request.kept[name] for request in jobs.requests])
            restore(local, sink.state, name, _split(layout, kept_rows))
    loss_sums, now = LossAccumulator(rows, params[0].device), params
    step = Step(buffers=_buffers(program, layout, jobs), first=None if deferred is None else deferred.first)
    if program.is_random:
        step.keys = jobs.mask_keys()
    for number, batch in enumerate(_batches(jobs, scratch) if deferred is None else deferred.batches):
        watch.check()
        if batch.y.shape[0] != now[0].shape[0]:  # len() of a tensor takes ten times as long
            now = [p[: batch.y.shape[0]] for p in params]
        sink.enter(now, number)
        step.number = number
        program.run(now, batch, sink, loss_sums, step)
        sink.leave()
    after = _ends(layout, first.wants_ends, params, unwritten, outputs.ends, scratch)  # changes are written over them
    deltas: list[Tensor | None] = [None] * len(params)
    scale = None if offsets is None else offsets.scale
    if any(request.wants_changes for request in jobs.requests):
        places = _stacks(layout, rows, outputs.rows, "parameter", scratch, bases[0])
        for at, (base, param) in enumerate(zip(bases, params, strict=True)):
            if at != unwritten:
                deltas[at] = torch.sub(base, param, out=places[at]).flatten(1)
        if deferred is not None and (scale is None or _wants_rows(jobs)):
            deltas[deferred.slot] = deferred.first.change(places[deferred.slot]).flatten(1)
    if deferred is not None:
        _end_of_first(layout, first.wants_ends, deferred, deltas[deferred.slot], after)
    extras, kept = None, {}
    if isinstance(sink, Collected):
        kept = {name: [state[name].flatten(1) for state in sink.state] for name in jobs.requests[0].kept}
        deltas, extras = sink.finish(deltas)
    for at in private:
        if deltas[at] is not None:
            deltas[at] = torch.zeros_like(cast(Tensor, deltas[at]))
    if offsets is not None and scale is not None:
        places = _stacks(layout, rows, outputs.next_rows, "next row", scratch, bases[0])
        offsets.follow(deltas, places)
        if deferred is not None and deltas[deferred.slot] is None:
            deferred.first.change(places[deferred.slot], scale)
        if not _wants_rows(jobs):
            deltas = [None] * len(deltas)  # a sum of next rows tells of them, too, if they are finite
    next_rows = None if scale is None else offsets
    losses = loss_sums.sums() / np.maximum(jobs.steps, 1)
    buffers = torch.cat([each.reshape(rows, -1) for each in step.buffers], dim=1) if step.buffers else None
    return BlockResult(jobs, deltas, extras, losses, next_rows, kept, buffers, after)


def _stacks(layout: Layout, rows: int, given: Tensor | None, name: str, scratch: Scratch, like: Tensor) -> list[Tensor]:
    """Return room for a stack per slot: in the memory given, or in the scratch."""
    if given is not None:
        return [given[:, slot.start : slot.stop].view(rows, *slot.stored_shape) for slot in layout.slots]
    return [scratch.take(f"{name} {at}", (rows, *slot.stored_shape), like) for at, slot in enumerate(layout.slots)]


def _ends(
    layout: Layout,
    names: tuple[str, ...],
    params: Sequence[Tensor],
    unwritten: int | None,
    given: Tensor | None,
    scratch: Scratch,
) -> Tensor | None:
    """Return the values of the named parameters, side by side, without those of the slot that is not written yet."""
    places = _places_of_ends(layout, names)
    if not places:
        return None
    width = max(part.stop for part in places.values())
    room = scratch.take("ends", (len(params[0]), width), params[0]) if given is None else given
    for at, part in places.items():
        if at != unwritten:
            room[:, part].copy_(params[at].flatten(1))
    return room


def _places_of_ends(layout: Layout, names: tuple[str, ...]) -> dict[int, slice]:
    """Return in which columns of the ends each named parameter lies, by its slot."""
    found: dict[int, slice] = {}
    start = 0
    for at in sorted(layout.places(names)):
        slot = layout.slots[at]
        found[at] = slice(start, start := start + slot.stop - slot.start)
    return found


def _end_of_first(
    layout: Layout, names: tuple[str, ...], deferred: "Deferred", change: Tensor | None, ends: Tensor | None
) -> None:
    """Write the weights of the layer that is written last into the ends, if they are wanted there."""
    part = _places_of_ends(layout, names).get(deferred.slot)
    if part is None or ends is None:
        return
    base = deferred.first.base
    room = ends[:, part].view(len(ends), *base.shape[1:])
    if change is None:
        deferred.first.end(room)
    else:
        torch.sub(base, change.view_as(room), out=room)


def _wants_rows(jobs: Jobs) -> bool:
    """Whether anyone asks for more of the changes than sums."""
    return any(request.coefficients is None or request.wants_norms for request in jobs.requests)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A block whose first layer is written at the end only."""

    slot: int  # of its weights
    first: FirstLayer
    batches: Sequence[Batch]


def lazy_slot(program: Lowered | Dense, layout: Layout, jobs: Jobs) -> int | None:
    """Return the slot of a first layer that is better not written at every step; None where there is none."""
    first = jobs.requests[0]
    layer = program.first_layer
    if layer is None or not layer.transposed or not is_fused(first.local):
        return None
    slot, longest = layer.weight, int(jobs.steps.max())
    if slot in layout.places(first.frozen):
        return None
    inputs, outputs = layout.slots[slot].stored_shape
    visits = longest * int(jobs.widths().max())
    is_even = 4 * int(jobs.steps.sum()) >= 3 * longest * len(jobs)  # rows that end early keep their room to the end
    if not visits or not is_even or not pays(inputs, outputs, visits):
        return None
    return slot if program.inputs(jobs.slabs[0].x[:1])[0].dim() == 2 else None  # one vector per sample


def _deferred(
    program: Program,
    jobs: Jobs,
    bases: Sequence[Tensor],
    anchors: Sequence[Tensor],
    offsets: GradientOffsets | None,
    scratch: Scratch,
    slot: int | None,
) -> Deferred | None:
    """Return how to train without writing this slot, the first layer's weights, at every step."""
    if slot is None or not isinstance(program, Dense | Lowered):
        return None
    x, batches = _at_once(program, jobs, scratch)
    has_anchor = anchors is not bases and "prox_strength" in jobs.settings  # a pull, but not towards the start
    mixed = mixes(jobs.settings, int(jobs.steps.max()), offsets is not None, has_anchor)
    offset = None if offsets is None else partial(offsets.pieces, slot)
    anchor = anchors[slot] if has_anchor else None
    first = FirstLayer(x, bases[slot], offset, anchor, mixed, jobs.steps, scratch)
    return Deferred(slot, first, batches)


def _buffers(program: Program, layout: Layout, jobs: Jobs) -> list[Tensor]:
    """Return the buffers each row starts from, (rows, …) each: its own, or the same for all rows of a block."""
    first, sent = jobs.requests[0], jobs.requests[0].buffers
    if first.buffer_starts is not None:
        own = jobs.rows_of([request.buffer_starts for request in jobs.requests])
        return [own[:, slot.start : slot.stop].reshape(len(jobs), *slot.shape).clone() for slot in layout.buffers]
    buffers = program.own_buffers if sent is None else sent
    return [slot.view(buffers).expand(len(jobs), *slot.shape).clone() for slot in layout.buffers]


def _starts(layout: Layout, jobs: Jobs) -> list[Tensor]:
    """Return the parameters each row starts from, per slot; a single row in front where all start from the same."""
    starts = [request.starts for request in jobs.requests]
    parts = jobs.parts_of(starts, [slice(slot.start, slot.stop) for slot in layout.slots])
    return [part.reshape(-1, *slot.stored_shape) for part, slot in zip(parts, layout.slots, strict=True)]


def _split(layout: Layout, rows: Tensor) -> list[Tensor]:
    """Return rows of the model's size as one stack per slot."""
    return [rows[:, slot.start : slot.stop].reshape(-1, *slot.stored_shape) for slot in layout.slots]


def _models(layout: Layout, jobs: Jobs) -> list[Tensor]:
    """Return the model each row was sent, per slot; a single row in front where all were sent the same."""
    owners = np.unique(jobs.owner)
    models = [jobs.requests[o].model for o in owners]
    if all(m is models[0] for m in models):
        return [models[0][s.start : s.stop].view(1, *s.stored_shape) for s in layout.slots]
    stack = torch.stack(models)
    which = torch.from_numpy(np.searchsorted(owners, jobs.owner)).to(stack.device)
    return [stack[:, s.start : s.stop].index_select(0, which).view(-1, *s.stored_shape) for s in layout.slots]


def _at_once(program: Lowered | Dense, jobs: Jobs, scratch: Scratch) -> tuple[Tensor, list[Batch]]:
    """Return the inputs of all visits, (rows, visits, inputs), and the batches of each step."""
    drawn, where = _drawn(jobs)
    rows, num_steps, width = where.shape
    x, y = _fetch(jobs, where.reshape(-1), lambda: np.repeat(np.arange(rows), num_steps * width), scratch)
    features = program.inputs(x)[0]
    x, y = x.view(rows, num_steps, width, *x.shape[1:]), y.view(rows, num_steps, width)
    batches = []
    for step, active in enumerate((jobs.steps[:, None] > np.arange(num_steps)).sum(0)):
        weights = _weights(drawn, slice(0, active), step, jobs.requests[0].model)
        batches.append(Batch(x[:active, step], y[:active, step], weights))
    return features.reshape(rows, num_steps * width, -1), batches


def _batches(jobs: Jobs, scratch: Scratch) -> Iterator[Batch]:
    """Yield the batches of each step, for the rows that are still at work; each is good until the next is taken."""
    drawn, where = _drawn(jobs)
    num_steps, width = where.shape[1:]
    active = (jobs.steps[:, None] > np.arange(num_steps)).sum(0)
    store = jobs.slabs[0]
    per_step = max(1, len(jobs) * width * store.x[0].numel() * store.x.element_size())
    chunk = max(1, GATHER_BYTES // per_step)
    for begin in range(0, num_steps, chunk):
        steps = range(begin, min(begin + chunk, num_steps))
        x, y = _gather(jobs, where, active, steps, scratch)
        sizes = [int(active[step]) * width for step in steps]
        for step, now, then in zip(steps, torch.split(x, sizes), torch.split(y, sizes), strict=True):
            rows = int(active[step])
            weights = _weights(drawn, slice(0, rows), step, jobs.requests[0].model)
            yield Batch(now.view(rows, width, *x.shape[1:]), then.view(rows, width, *y.shape[1:]), weights)


def _drawn(jobs: Jobs) -> tuple[Batches, Ids]:
    """Return the batches of every row, and where their samples lie in the stores, (rows, steps, batch)."""
    local = jobs.requests[0].local
    how = (local.batch_size, local.batches, local.cycle, jobs.requests[0].first_step)
    drawn = draw_batches(jobs.keys, jobs.sizes, jobs.steps, *how)
    return drawn, _store_rows(jobs, drawn.positions)


def _weights(drawn: Batches, rows: slice, step: int, like: Tensor) -> Tensor | None:
    """Return 1/count for the samples of a batch and 0 for its padding; None where every batch is full."""
    if drawn.is_full:
        return None
    counts = drawn.counts[rows, step]
    table = (np.arange(drawn.positions.shape[2])[None, :] < counts[:, None]) / counts[:, None]
    return torch.as_tensor(table, dtype=like.dtype, device=like.device)


def _store_rows(jobs: Jobs, positions: Ids) -> Ids:
    """Return where each sample lies in its store: positions within a client, through its offset and order."""
    where = positions + jobs.starts[:, None, None]
    for owner in np.unique(jobs.owner):
        order = jobs.slabs[owner].order
        if order is not None:
            mine = slice(None) if len(jobs.slabs) == 1 else np.flatnonzero(jobs.owner == owner)
            where[mine] = order.numpy()[where[mine]]
    return where


def _gather(jobs: Jobs, where: Ids, active: Ids, steps: range, scratch: Scratch) -> tuple[Tensor, Tensor]:
    """Return the samples of these steps, step after step, end to end."""
    if active[steps.stop - 1] == len(jobs):
        flat = where[:, steps.start : steps.stop].swapaxes(0, 1).reshape(-1)
    else:
        flat = np.concatenate([where[: active[s], s].reshape(-1) for s in steps])

    def whose() -> Ids:
        return np.concatenate([np.repeat(np.arange(active[s]), where.shape[2]) for s in steps])

    return _fetch(jobs, flat, whose, scratch)


def _fetch(jobs: Jobs, flat: Ids, rows: Callable[[], Ids], scratch: Scratch) -> tuple[Tensor, Tensor]:
    """Return the samples at these places of their stores; `rows` says whose they are, where stores differ."""
    kinds = [(id(slab.x), id(slab.y)) for slab in jobs.slabs]  # runs may share inputs and have labels of their own
    numbers = {kind: number for number, kind in enumerate(kinds)}
    of_slab = np.array([numbers[kind] for kind in kinds])
    stores = {int(number): jobs.slabs[number] for number in np.unique(of_slab[jobs.owner])}
    store = next(iter(stores.values()))
    index = torch.from_numpy(flat).to(store.x.device)
    x = scratch.take("inputs", (len(index), *store.x.shape[1:]), store.x)
    y = scratch.take("targets", (len(index), *store.y.shape[1:]), store.y)
    if len(stores) == 1:
        return torch.index_select(store.x, 0, index, out=x), torch.index_select(store.y, 0, index, out=y)
    of_sample = of_slab[jobs.owner][rows()]
    for key, stacks in stores.items():
        mine = torch.from_numpy(np.flatnonzero(of_sample == key)).to(index.device)
        x.index_copy_(0, mine, stacks.x.index_select(0, index[mine]))
        y.index_copy_(0, mine, stacks.y.index_select(0, index[mine]))
    return x, y
