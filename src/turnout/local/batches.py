"""Mini-batches: the samples of each client at each local step, as a pure function of keys, sizes and steps.

Shuffled: every epoch is a new permutation of the client's samples, split into batches; the last batch of an epoch may
be smaller. Replaced: samples are drawn independently, with replacement. Full: every step uses all samples.
"""

from typing import NamedTuple

import numpy as np

from turnout.array_types import Bits, Ids
from turnout.limits import check_memory
from turnout.protocols import Batching
from turnout.streams import GAMMA, mix, unit

ONE_EACH = (0,)  # a cycle of one step with one batch: every step has a batch of its own
BYTES_PER_DRAW = 16  # memory per drawn sample, at least: two 8-byte indices


class Batches(NamedTuple):
    """Positions within each client's samples: [rows, steps, batch]; beyond `counts` they are padding."""

    positions: Ids
    counts: Ids  # [rows, steps]: samples in the batch; 0 after a row's last step
    is_full: bool  # every batch of every active step has the same size


def steps_per_epoch(sizes: Ids, batch_size: int | None) -> Ids:
    """Return ⌈n_i / B⌉."""
    return np.ones_like(sizes) if batch_size is None else -(-sizes // batch_size)


def samples_used(
    sizes: Ids, steps: Ids, batch_size: int | None, batching: Batching, cycle: tuple[int, ...] = ONE_EACH
) -> Ids:
    """Return how many per-sample gradients each client computes in this many steps."""
    if cycle != ONE_EACH:
        return _used_in_cycles(sizes, steps, batch_size, batching, cycle)
    if batching == "full" or batch_size is None:
        return sizes * steps
    if batching == "replaced":
        return np.asarray(batch_size * steps)
    per_epoch = steps_per_epoch(sizes, batch_size)
    used: Ids = (steps // per_epoch) * sizes + np.minimum((steps % per_epoch) * batch_size, sizes)
    return used


def _used_in_cycles(sizes: Ids, steps: Ids, batch_size: int | None, batching: Batching, cycle: tuple[int, ...]) -> Ids:
    """Return the same where batches come again: the difference that each step's batch makes, added up."""
    used = np.zeros_like(sizes)
    for number, visits in zip(*_visits(steps, cycle), strict=True):
        upto = samples_used(sizes, np.full_like(steps, number + 1), batch_size, batching)
        used += visits * (upto - samples_used(sizes, np.full_like(steps, number), batch_size, batching))
    return used


def _visits(steps: Ids, cycle: tuple[int, ...]) -> tuple[list[int], list[Ids]]:
    """Return every batch's number, and how often each row of so many steps uses it."""
    of_step = batch_numbers(int(steps.max(initial=0)), cycle)
    numbers = sorted(set(of_step.tolist()))
    return numbers, [(np.flatnonzero(of_step == n)[None, :] < steps[:, None]).sum(1) for n in numbers]


def batch_numbers(steps: int, cycle: tuple[int, ...]) -> Ids:
    """Return the number of the batch that each step uses."""
    step, fresh = np.arange(steps), max(cycle) + 1
    return np.asarray(step // len(cycle) * fresh + np.array(cycle)[step % len(cycle)])


def draw_batches(
    keys: Bits,
    sizes: Ids,
    steps: Ids,
    batch_size: int | None,
    batching: Batching,
    cycle: tuple[int, ...] = ONE_EACH,
    first_step: int = 0,
) -> Batches:
    """Return the batches of each row; a row depends only on its own key, size and steps.

    In a `cycle` of steps, step k of it uses the batch cycle[k] of those that are drawn for the cycle. With a
    `first_step`, so many steps were done before, and the batches are those that follow.
    """
    if first_step:
        drawn = draw_batches(keys, sizes, steps + first_step, batch_size, batching, cycle)
        positions, counts = drawn.positions[:, first_step:], drawn.counts[:, first_step:]
        width = int(counts.max(initial=0))
        is_full = bool((counts[counts > 0] == width).all())
        return Batches(positions[:, :, :width], counts, is_full)
    if cycle != ONE_EACH:
        drawn = draw_batches(keys, sizes, -(-steps // len(cycle)) * (max(cycle) + 1), batch_size, batching)
        longest = int(steps.max(initial=0))
        which = batch_numbers(longest, cycle)
        counts = np.where(np.arange(longest)[None, :] < steps[:, None], drawn.counts[:, which], 0)
        return Batches(drawn.positions[:, which], counts, drawn.is_full)
    longest = int(steps.max(initial=0))
    if batching == "full" or batch_size is None:
        width = int(sizes.max(initial=0))
        within = np.arange(width)[None, None, :]
        once = np.where(within < sizes[:, None, None], within, 0)
        positions = np.broadcast_to(once, (len(sizes), longest, width))
        counts = np.where(np.arange(longest)[None, :] < steps[:, None], sizes[:, None], 0)
        return Batches(positions, counts, bool((sizes == width).all()))
    needed = BYTES_PER_DRAW * (len(sizes) * longest * batch_size + float(steps @ np.minimum(sizes, batch_size)))
    work = f"Training with {longest:,} steps of {batch_size:,} samples"
    check_memory(needed, work, "Lower local.steps, local.epochs or local.batch_size.")
    if batching == "replaced":
        return _replaced(keys, sizes, steps, batch_size, longest)
    return _shuffled(keys, sizes, steps, batch_size, longest)


def _replaced(keys: Bits, sizes: Ids, steps: Ids, batch_size: int, longest: int) -> Batches:
    counters = np.arange(1, longest * batch_size + 1, dtype=np.uint64) * GAMMA
    draws = unit(mix(keys[:, None] + counters[None, :])).reshape(len(keys), longest, batch_size)
    positions = (draws * sizes[:, None, None]).astype(np.int64)
    counts = np.where(np.arange(longest)[None, :] < steps[:, None], batch_size, 0)
    return Batches(positions, counts, True)


def _shuffled(keys: Bits, sizes: Ids, steps: Ids, batch_size: int, longest: int) -> Batches:
    per_epoch = steps_per_epoch(sizes, batch_size)
    epochs = np.maximum(-(-steps // per_epoch), 1)
    order = permutations(keys, sizes, epochs)
    row_start = np.cumsum(sizes * epochs) - sizes * epochs
    step = np.arange(longest)[None, :]
    epoch, turn = step // per_epoch[:, None], step % per_epoch[:, None]
    active = step < steps[:, None]
    counts = np.where(active, np.minimum(batch_size, sizes[:, None] - turn * batch_size), 0)
    first = row_start[:, None] + np.where(active, epoch * sizes[:, None] + turn * batch_size, 0)
    where = first[:, :, None] + np.arange(batch_size)
    is_full = bool((counts[active] == batch_size).all())
    if not (is_full and active.all()):
        where = np.where(np.arange(batch_size) < counts[:, :, None], where, row_start[:, None, None])
    return Batches(order[where], counts, is_full)


def permutations(keys: Bits, sizes: Ids, epochs: Ids) -> Ids:
    """Return `epochs` permutations of range(size) for each row, end to end."""
    per_row = sizes * epochs
    group_sizes = np.repeat(sizes, epochs)
    group_starts = np.cumsum(group_sizes) - group_sizes
    counter = np.arange(int(per_row.sum())) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    bits = mix(np.repeat(keys, per_row) + (counter.astype(np.uint64) + np.uint64(1)) * GAMMA)
    group = np.repeat(np.arange(len(group_sizes), dtype=np.uint64), group_sizes)
    ranked = (group << np.uint64(40)) | (bits >> np.uint64(24))  # fixed widths: a block's size has no effect
    if len(group_sizes) >= 1 << 24:  # more groups than the upper 24 bits can hold
        return np.lexsort((bits, group)) - np.repeat(group_starts, group_sizes)
    order = np.argsort(ranked)
    in_order = ranked[order]
    if (in_order[1:] == in_order[:-1]).any():  # a tie, about once in 10^8 shuffles: break it by position
        order = np.argsort(ranked, kind="stable")
    return order - np.repeat(group_starts, group_sizes)
