"""Parts of an evaluation: some samples of the test set, and the hold-outs of some clients.

The items of an evaluation are the samples of its test set, one after another, then the clients whose hold-outs are
measured. Metrics are means over samples, so those of a whole test set are the means of its parts, weighted by size.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from turnout.array_types import Floats
from turnout.data.federation import Federation, Held, Samples, positions
from turnout.engine.evaluation import evaluation_samples
from turnout.engine.task import Question, Task
from turnout.requests import Evaluate, Evaluated


class Split(NamedTuple):
    """What a range of items refers to."""

    rows: slice  # of the test set
    clients: slice  # whose hold-outs are measured
    size: int  # number of samples of the whole test set
    num_clients: int  # whose hold-outs are measured in all

    @property
    def share(self) -> float:
        """Share of the test set that these rows are."""
        return float((self.rows.stop - self.rows.start) / max(self.size, 1))

    @property
    def has_clients(self) -> bool:
        """Whether hold-outs are measured."""
        return bool(self.clients.stop > self.clients.start)


def evaluated_samples(federation: Federation, request: Evaluate) -> Floats:
    """Return how many samples each item of an evaluation looks at; one item of none where there is nothing."""
    size, sizes = _test_size(federation, request), _measured_sizes(federation, request)
    return np.concatenate([np.ones(size), sizes]) if size or len(sizes) else np.zeros(1)


def split(federation: Federation, request: Evaluate, items: slice) -> Split:
    """Return which rows of the test set and which clients a range of items is."""
    size, count = _test_size(federation, request), len(_measured_sizes(federation, request))
    low, high = items.start, min(items.stop, size + count)
    rows = slice(min(low, size), min(high, size))
    return Split(rows, slice(max(low - size, 0), max(high - size, 0)), size, count)


def with_part(before: Evaluated, part: Evaluated, place: Split) -> Evaluated:
    """Return an answer with one more part: means added by their share, clients' numbers in their places."""
    metrics = {name: before.metrics.get(name, 0.0) + place.share * value for name, value in part.metrics.items()}
    return Evaluated(
        metrics=before.metrics | metrics,
        client_accuracy=_put(before.client_accuracy, part.client_accuracy, place),
        client_loss=_put(before.client_loss, part.client_loss, place),
    )


@dataclass(frozen=True, slots=True)
class EvaluationPart:
    """A range of items of an evaluation, as it is sent to a worker, which has the samples."""

    request: Evaluate
    items: slice

    def question(self, task: Task) -> Question:
        """Return an evaluation on these items alone; the whole of it is the evaluation itself."""
        held, place = task.federation, split(task.federation, self.request, self.items)
        if place[:2] == (slice(0, place.size), slice(0, place.num_clients)):
            return task, self.request
        test, rows = evaluation_samples(task, self.request), place.rows
        some = None if test is None or rows.start == rows.stop else Samples(test.x[rows], test.y[rows])
        holdout = _excerpt(held.holdout, place.clients) if held.holdout is not None and place.has_clients else None
        request = replace(self.request, clients=None, per_client=place.has_clients)
        return replace(task, federation=replace(held, test=some, holdout=holdout)), request


def _excerpt(holdout: Held, clients: slice) -> Held:
    """Return the hold-outs of consecutive clients."""
    rows = positions(holdout.fetch(np.arange(clients.start, clients.stop)))
    offsets = holdout.offsets[clients.start : clients.stop + 1] - holdout.offsets[clients.start]
    return Held(holdout.x[rows], holdout.y[rows], offsets)


def _test_size(federation: Federation, request: Evaluate) -> int:
    if request.clients is not None and federation.holdout is not None:
        return int(federation.holdout.sizes[request.clients].sum())
    return 0 if federation.test is None else len(federation.test)


def _measured_sizes(federation: Federation, request: Evaluate) -> Floats:
    if not request.per_client or federation.holdout is None:
        return np.zeros(0)
    return federation.holdout.sizes.astype(np.float64)


def _put(whole: Floats | None, some: Floats | None, place: Split) -> Floats | None:
    if some is None:
        return whole
    whole = np.full(place.num_clients, np.nan) if whole is None else whole
    whole[place.clients] = some
    return whole
