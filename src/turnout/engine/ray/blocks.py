"""Blocks: the pieces of work that workers do.

Where blocks begin and end follows from the questions alone, never from how many workers there are. So the sums of
blocks, added in the order of blocks, are the same on any cluster.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.distillation import Distil, Predict
from turnout.engine.ray.evaluation_parts import EvaluationPart, evaluated_samples
from turnout.engine.task import Question, Task
from turnout.engine.vectorised.engine import group_key
from turnout.offset import Offset
from turnout.requests import EngineRequest, Evaluate, EvaluateEach, Fit, Probe, Score
from turnout.row_table import RowSource, TableExcerpt

BLOCK_WORK = 8e7  # samples times parameters that a block has at least: some ten milliseconds
BLOCK_SAMPLES = 100  # samples that a block has at least: returning a sum then takes a small share of its time
OVERHEAD = 1000  # parameters that one sample costs beside the model's own
RULE = {"work": BLOCK_WORK, "samples": BLOCK_SAMPLES, "overhead": OVERHEAD}  # what decides how work is cut


class Piece(NamedTuple):
    """A range of one question's items: clients or, of a Score, models; test samples of an Evaluate."""

    question: int
    items: slice


Block = tuple[Piece, ...]


def blocks_of(questions: Sequence[Question]) -> list[Block]:
    """Return the blocks of these questions; questions that an engine answers together may share a block."""
    groups: dict[Any, list[int]] = {}
    for at, (task, request) in enumerate(questions):
        groups.setdefault(group_key(task, request), []).append(at)
    return [block for members in groups.values() for block in _blocks_of_group(questions, members)]


def _blocks_of_group(questions: Sequence[Question], members: Sequence[int]) -> list[Block]:
    samples = [_samples(*questions[at]) for at in members]
    owner = np.repeat(members, [len(each) for each in samples])
    place = np.concatenate([np.arange(len(each)) for each in samples])
    number = _block_numbers(np.concatenate(samples), questions[members[0]][0].layout.size)
    bounds = np.flatnonzero(np.diff(number, prepend=-1) | np.diff(owner, prepend=-1))  # where a piece begins
    blocks: dict[int, list[Piece]] = {}
    for low, high in zip(bounds, [*bounds[1:], len(owner)], strict=True):
        items = slice(int(place[low]), int(place[high - 1]) + 1)
        blocks.setdefault(int(number[low]), []).append(Piece(int(owner[low]), items))
    return [tuple(pieces) for pieces in blocks.values()]


def _block_numbers(samples: Floats, size: int) -> Ids:
    """Return the block of each item, ascending: as many blocks as there is work for, of about equal work."""
    total = float(samples.sum())
    enough = int(min(total * (size + OVERHEAD) / BLOCK_WORK, total / BLOCK_SAMPLES))
    count = len(samples) if enough >= len(samples) else _divisible(enough)
    middle = np.cumsum(samples) - samples / 2
    return np.minimum(middle * count / max(total, 1.0), count - 1).astype(np.int64)


def _divisible(most: int) -> int:
    """Return the largest 2ᵏ or 3·2ᵏ up to a number, 1 at least: so many blocks share out evenly among most workers."""
    return max((1, *(factor << k for factor in (1, 3) for k in range(most.bit_length()) if factor << k <= most)))


def _samples(task: Task, request: EngineRequest) -> Floats:
    """Return how many samples each item of a request looks at, one after another."""
    held = task.federation
    if isinstance(request, Fit):
        server = 0 if held.server is None else len(held.server)
        sizes = np.array([server]) if request.on_server else held.sizes[request.clients]
        batch_size = request.local.batch_size
        return np.asarray(request.steps * (sizes if batch_size is None else np.minimum(sizes, batch_size)), float)
    if isinstance(request, Probe):
        sizes = held.sizes[request.clients]
        return np.asarray(sizes if request.batch_size is None else np.minimum(sizes, request.batch_size), float)
    if isinstance(request, Predict | Distil):
        seen = len(request.samples)
        if isinstance(request, Distil):
            seen = request.steps * min(seen, request.batch_size or seen)
        return np.full(len(request.models), float(seen))
    if isinstance(request, Score):
        on_server = 0 if held.server is None else len(held.server)
        return np.full(len(request.models), float(on_server if request.client is None else held.sizes[request.client]))
    if isinstance(request, EvaluateEach):
        return np.zeros(0) if held.holdout is None else np.asarray(held.holdout.sizes[request.clients], float)
    return evaluated_samples(held, request)


def part(request: EngineRequest, items: slice) -> EngineRequest | EvaluationPart:
    """Return a request for some of a request's items, with no more of its data than they need."""
    if isinstance(request, Evaluate):
        return EvaluationPart(request, items)
    if isinstance(request, Score):
        return replace(request, models=request.models[items])
    if isinstance(request, Predict):
        clients = None if request.clients is None else request.clients[items]
        return replace(request, models=request.models[items], clients=clients)
    if isinstance(request, Distil):
        targets = request.targets if len(request.targets) == 1 else request.targets[items]
        return replace(request, models=request.models[items], clients=request.clients[items], targets=targets)
    if isinstance(request, Probe):
        models = None if request.models is None else request.models[items]
        return replace(request, clients=request.clients[items], models=models)
    if isinstance(request, EvaluateEach):
        own = None if request.own_buffers is None else request.own_buffers[items]
        return replace(request, clients=request.clients[items], models=request.models[items], own_buffers=own)
    clients = request.clients[items]
    return replace(
        request,
        clients=clients,
        steps=request.steps[items],
        settings={name: values[items] for name, values in request.settings.items()},
        coefficients=_some(request.coefficients, items),
        buffer_weights=request.buffer_weights[items],
        offset=None if request.offset is None else _part_of_offset(request.offset, clients, items),
        starts=_excerpt(request.starts, clients),
        buffer_starts=_excerpt(request.buffer_starts, clients),
        kept={name: TableExcerpt(clients, table.take(clients)) for name, table in request.kept.items()},
        into=None,
        ends_into=None,
    )


def _part_of_offset(offset: Offset, clients: Ids, items: slice) -> Offset:
    return Offset(
        shared=offset.shared,
        table=TableExcerpt(clients, offset.table.take(clients)),
        scale=_some(offset.scale, items),
        weights=_some(offset.weights, items),
    )


def _excerpt(rows: RowSource | None, clients: Ids) -> TableExcerpt | None:
    return None if rows is None else TableExcerpt(clients, rows.take(clients))


def _some(values: Floats | None, items: slice) -> Floats | None:
    return None if values is None else values[items]


def question_of(task: Task, asked: EngineRequest | EvaluationPart) -> Question:
    """Return what a worker's engine is asked."""
    return asked.question(task) if isinstance(asked, EvaluationPart) else (task, asked)
