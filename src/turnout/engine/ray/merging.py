"""Put the answers to the pieces of a question together, in the order of blocks."""

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats
from turnout.distillation import Distil, Distilled, Predict, Predicted
from turnout.engine.ray.evaluation_parts import split, with_part
from turnout.engine.task import Task
from turnout.requests import (
    Answer,
    EachEvaluated,
    EngineRequest,
    Evaluate,
    Evaluated,
    EvaluateEach,
    Fit,
    Probe,
    Probed,
    Scored,
    Trained,
)
from turnout.row_table import new_rows


class Merge:
    """The answer to one question in the making. Nothing in it refers to memory of the object store."""

    def __init__(self, task: Task, request: EngineRequest) -> None:
        self.task, self.request = task, request
        self.whole: Any = None

    def add(self, items: slice, answer: Any) -> None:
        """Take in the answer to a piece; pieces come in the order of blocks."""
        if isinstance(self.request, Evaluate):
            place = split(self.task.federation, self.request, items)
            self.whole = with_part(self.whole or Evaluated(metrics={}), answer, place)
        elif isinstance(self.request, Fit):
            self.whole = _joined(self.request, self.whole or _empty(self.request), items, answer)
        elif isinstance(self.request, Probe):
            before = self.whole or Probed(clients=self.request.clients)
            count, samples = len(self.request.clients), before.samples + answer.samples
            loss = _put_numbers(before.loss, answer.loss, items, count)
            rows = _put_rows(before.gradient, answer.gradient, items, count)
            self.whole = replace(before, loss=loss, gradient=rows, samples=samples)
        elif isinstance(self.request, EvaluateEach):
            before, count = self.whole or EachEvaluated(loss=np.zeros(0)), len(self.request.clients)
            loss = _put_numbers(before.loss if self.whole else None, answer.loss, items, count)
            accuracy = _put_numbers(before.accuracy, answer.accuracy, items, count)
            self.whole = EachEvaluated(loss=cast(Floats, loss), accuracy=accuracy)
        elif isinstance(self.request, Predict):
            before = () if self.whole is None else (self.whole.outputs,)
            self.whole = Predicted(outputs=torch.cat([*before, answer.outputs]))
        elif isinstance(self.request, Distil):
            before = () if self.whole is None else (self.whole.models,)
            gradients = answer.gradients + (0 if self.whole is None else self.whole.gradients)
            self.whole = Distilled(models=torch.cat([*before, answer.models]), gradients=gradients)
        else:
            before = self.whole or Scored(loss=np.zeros(0))
            joined = np.concatenate([before.loss, answer.loss])
            self.whole = Scored(loss=joined, samples=before.samples + answer.samples)

    def answer(self) -> Answer:
        """Return the finished answer."""
        answer: Answer = self.whole
        return answer


def _empty(request: Fit) -> Trained:
    """Return the answer before any piece of it came, with memory for the rows."""
    count, offset = len(request.clients), request.offset
    return Trained(
        clients=request.clients,
        steps=request.steps,
        loss=np.full(count, np.nan),
        finite=np.ones(count, dtype=bool),
        delta=None if request.into is None else request.into[:count],
        next_rows=None if offset is None or offset.scale is None else offset.table.spare(count),
    )


def _joined(request: Fit, before: Trained, items: slice, piece: Trained) -> Trained:
    """Return an answer with one more piece: numbers and rows in their places, sums added."""
    count = len(request.clients)
    before.loss[items], before.finite[items] = piece.loss, piece.finite
    return replace(
        before,
        square_norms=_put_numbers(before.square_norms, piece.square_norms, items, count),
        delta=_put_rows(before.delta, piece.delta, items, count),
        extra=_put_rows(before.extra, piece.extra, items, count),
        next_rows=_put_rows(before.next_rows, piece.next_rows, items, count),
        reduced=_added(before.reduced, piece.reduced),
        buffers=_added(before.buffers, piece.buffers),
        next_sum=_added(before.next_sum, piece.next_sum),
        kept={name: _written(before.kept.get(name), rows, items, count) for name, rows in piece.kept.items()},
        ends=_put_rows(before.ends, piece.ends, items, count),
        buffer_ends=_put_rows(before.buffer_ends, piece.buffer_ends, items, count),
    )


def _put_numbers(whole: Floats | None, some: Floats | None, items: slice, count: int) -> Floats | None:
    if some is None:
        return whole
    whole = np.zeros(count) if whole is None else whole
    whole[items] = some
    return whole


def _put_rows(whole: Tensor | None, some: Tensor | None, items: slice, count: int) -> Tensor | None:
    return whole if some is None else _written(whole, some, items, count)


def _written(whole: Tensor | None, some: Tensor, items: slice, count: int) -> Tensor:
    if whole is None:
        whole = new_rows(count, some.shape[1], some.dtype, some.device, torch.zeros)
    whole[items] = some
    return whole


def _added(total: Tensor | None, some: Tensor | None) -> Tensor | None:
    if total is None or some is None:
        return total if some is None else some.clone()
    return total.add_(some)
