"""Measuring a model without training it: test sets, hold-outs, clients' losses and gradients."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.data.federation import Held, Samples, Slab, positions
from turnout.distillation import Distil, Predict
from turnout.engine.distillation import distil, predict
from turnout.engine.module_probe import for_rows, gives_same_outputs
from turnout.engine.task import Task, client_samples
from turnout.engine.vectorised.layers import CannotLower, Nowhere, Pass
from turnout.engine.vectorised.lowering import Lowered
from turnout.engine.watch import Watch
from turnout.errors import ConfigError
from turnout.local.batches import draw_batches
from turnout.losses import correct
from turnout.metrics import measurable
from turnout.requests import (
    Answer,
    EachEvaluated,
    EngineRequest,
    Evaluate,
    Evaluated,
    EvaluateEach,
    Probe,
    Probed,
    Score,
    Scored,
)

CHUNK_VALUES = 4 << 20  # numbers looked at in one forward pass
SPREAD = 4  # what convolutions make of an image takes several times its room


class Evaluator:
    """A private copy of a task's module, to measure with."""

    def __init__(self, task: Task, watch: Watch) -> None:
        self.task, self.watch = task, watch
        self.module = copy.deepcopy(task.module).eval()
        self.stack: Lowered | None = None
        if not task.layout.buffers:
            with suppress(CannotLower):
                lowered = Lowered(self.module, task.layout, task.loss)
                self.stack = lowered if gives_same_outputs(lowered, task, self.module) else None

    def evaluate(self, tasks: Sequence[Task], requests: Sequence[Evaluate]) -> list[Evaluated]:
        """Measure several models; those that share a test set are measured in one pass where the module allows."""
        answers = []
        together = self._test_metrics(tasks, requests)
        for task, request, metrics in zip(tasks, requests, together, strict=True):
            accuracy = loss = None
            holdout = task.federation.at(request.round).holdout
            if request.per_client and holdout is not None:
                loss, accuracy = self._by_client(holdout, request, _classes(task, request))
            answers.append(Evaluated(metrics=metrics, client_accuracy=accuracy, client_loss=loss))
        return answers

    def single(self, request: EngineRequest) -> Callable[[Task, Any], Answer] | None:
        """Return what answers a request that needs no training and is answered alone; None for the others."""
        answering: dict[type, Callable[[Task, Any], Answer]] = {
            Probe: self.probe,
            Score: self.score,
            EvaluateEach: self.evaluate_each,
            Predict: partial(predict, self),
            Distil: partial(distil, self),
        }
        return answering.get(type(request))

    def evaluate_each(self, task: Task, request: EvaluateEach) -> EachEvaluated:
        """Return the loss of each client's own model on the client's hold-out and, with classes, its accuracy."""
        holdout, classes = task.federation.at(request.round).holdout, _classes(task, request)
        assert holdout is not None
        slab = holdout.fetch(request.clients)
        where, ends = positions(slab).cpu().numpy(), np.cumsum(slab.sizes)
        self.watch.expect(len(ends))
        losses, hits = np.zeros(len(ends)), np.zeros(len(ends))
        has_accuracy = False
        for at, (end, size) in enumerate(zip(ends, slab.sizes, strict=True)):
            rows, samples = where[end - size : end], Samples(slab.x, slab.y)
            buffers = request.buffers if request.own_buffers is None else request.own_buffers[at]
            loss, right = self._per_sample(request.models[at], buffers, samples, rows, classes)
            losses[at], has_accuracy = loss.mean(), right is not None
            hits[at] = 0.0 if right is None else right.mean()
        return EachEvaluated(loss=losses, accuracy=hits if has_accuracy else None)

    def probe(self, task: Task, request: Probe) -> Probed:
        """Return each client's loss or gradient at the request's model."""
        slab = client_samples(task.federation, request)
        where, counts = _probe_rows(slab, request)
        owner = np.repeat(np.arange(len(counts)), counts)
        if request.models is not None:
            mean = self._losses_of_own(request.models, request.buffers, slab, np.split(where, np.cumsum(counts)[:-1]))
            return Probed(clients=request.clients, loss=mean, samples=len(where))
        if request.what == "loss":
            classes = None if request.blocks is None else task.federation.num_classes
            losses, hits = self._per_sample(request.model, request.buffers, Samples(slab.x, slab.y), where, classes)
            mean = np.bincount(owner, losses, len(counts)) / counts
            accuracy = None if hits is None else np.bincount(owner, hits, len(counts)) / counts
            return Probed(clients=request.clients, loss=mean, accuracy=accuracy, samples=len(where))
        ends = np.cumsum(counts)
        rows = [
            self._gradient(request.model, request.buffers, slab, where[end - n : end])
            for end, n in zip(ends, counts, strict=True)
        ]
        return Probed(clients=request.clients, gradient=torch.stack(rows), samples=len(where))

    def _losses_of_own(self, models: Tensor, buffers: Tensor | None, slab: Slab, where: list[Ids]) -> Floats:
        """Return the mean loss of each client's own model on its samples."""
        samples = Samples(slab.x, slab.y)
        parts = [self._per_sample(model, buffers, samples, rows)[0] for model, rows in zip(models, where, strict=True)]
        return np.array([part.mean() for part in parts])

    def score(self, task: Task, request: Score) -> Scored:
        """Return the mean loss of each model on the server's samples or on one client's hold-out."""
        samples = task.federation.server if request.on == "server" else _holdout_of(task, request)
        if samples is None or len(samples) == 0:
            raise ConfigError(
                f"Scoring models on {request.on} samples needs some; {task.federation.name} has none. "
                "Set data.server_samples (or data.holdout, to score on a client's own) above 0.",
                setting="data.server_samples",
            )
        if self.stack is not None:
            metrics = self._stacked_metrics(samples, list(request.models))
            loss = np.array([m["loss"] for m in metrics])
        else:
            every = np.arange(len(samples))
            parts = [self._per_sample(m, request.buffers, samples, every)[0] for m in request.models]
            loss = np.array([part.mean() for part in parts])
        return Scored(loss=loss, samples=len(samples) * len(loss))

    def _test_metrics(self, tasks: Sequence[Task], requests: Sequence[Evaluate]) -> list[dict[str, float]]:
        tests = [evaluation_samples(task, request) for task, request in zip(tasks, requests, strict=True)]
        metrics: list[dict[str, float]] = [{} for _ in requests]
        groups: dict[int, list[int]] = {}
        for at, test in enumerate(tests):
            if test is not None and len(test):
                groups.setdefault(id(test.x), []).append(at)
        for members in groups.values():
            first = _first_alike([requests[at] for at in members])
            kept = list(dict.fromkeys(first))
            classes = max((_classes(tasks[at], requests[at]) or 0 for at in members), default=0) or None
            measured = self._metrics(cast(Samples, tests[members[0]]), [requests[members[at]] for at in kept], classes)
            by_first = dict(zip(kept, measured, strict=True))
            for at, alike in zip(members, first, strict=True):
                wanted = requests[at].metrics
                metrics[at] = {name: value for name, value in by_first[alike].items() if name in wanted}
        return metrics

    def _metrics(self, test: Samples, requests: Sequence[Evaluate], classes: int | None) -> list[dict[str, float]]:
        """Measure several models on one test set."""
        if len(requests) > 1 and self.stack is not None and not self.task.of_images:
            return self._stacked_metrics(test, [r.model for r in requests], classes)
        metrics, every = [], np.arange(len(test))
        self.watch.expect(len(requests) * len(list(_chunks(len(test), self._wide(test)))))
        for request in requests:
            losses, hits = self._per_sample(request.model, request.buffers, test, every, classes)
            measured = {"loss": float(losses.mean())}
            metrics.append(measured | ({"accuracy": float(hits.mean())} if hits is not None else {}))
        return metrics

    def _stacked_metrics(
        self, samples: Samples, models: Sequence[Tensor], classes: int | None = None
    ) -> list[dict[str, float]]:
        assert self.stack is not None
        (x, y), slots, has_accuracy = samples, self.task.layout.slots, False
        group = max(1, CHUNK_VALUES // max(1, 4 * self.task.layout.size))
        metrics: list[dict[str, float]] = []
        self.watch.expect(sum(len(list(_chunks(len(y), n * x[0].numel()))) for n in _sizes(len(models), group)))
        for begin in range(0, len(models), group):
            stack = torch.stack(list(models[begin : begin + group]))
            params = [stack[:, s.start : s.stop].reshape(-1, *s.stored_shape) for s in slots]
            loss, hits = torch.zeros(len(stack), dtype=torch.float64), torch.zeros(len(stack), dtype=torch.float64)
            for where in _chunks(len(y), len(stack) * x[0].numel()):
                self.watch.check()
                now, then = x[where], y[where]
                with torch.no_grad():
                    run = Pass(params, Nowhere(), torch.zeros(()), len(stack))
                    out = self.stack.forward(run, [for_rows(each, len(stack)) for each in self.stack.inputs(now)])
                    target = then.expand(len(stack), *then.shape).flatten(0, 1)
                    loss += self.task.loss(out, target).view(len(stack), -1).double().sum(1).cpu()
                    has_accuracy = "accuracy" in measurable(out, target, classes)
                    if has_accuracy:
                        hits += correct(out, target).view(len(stack), -1).sum(1).cpu()
            for row in range(len(stack)):
                measured = {"loss": float(loss[row]) / len(y)}
                metrics.append(measured | ({"accuracy": float(hits[row]) / len(y)} if has_accuracy else {}))
        return metrics

    def _by_client(self, holdout: Held, request: Evaluate, classes: int | None) -> tuple[Floats, Floats | None]:
        sizes = holdout.sizes
        owner = np.repeat(np.arange(len(sizes)), sizes)
        where = np.arange(len(owner)) if holdout.order is None else holdout.order.numpy().astype(np.int64)
        samples = Samples(holdout.x, holdout.y)
        self.watch.expect(len(list(_chunks(len(where), self._wide(samples)))))
        losses, hits = self._per_sample(request.model, request.buffers, samples, where, classes)
        counts = np.where(sizes > 0, sizes, np.nan)
        mean_loss = np.bincount(owner, losses, len(sizes)) / counts
        return mean_loss, None if hits is None else np.bincount(owner, hits, len(sizes)) / counts

    def _per_sample(
        self, model: Tensor, buffers: Tensor | None, samples: Samples, where: Ids, classes: int | None = None
    ) -> tuple[Floats, Floats | None]:
        """Return the loss of each of these samples and, where there are classes, whether the model was right."""
        state, (x, y) = self._state(model, buffers), samples
        losses, hits = [], []
        for part in _chunks(len(where), self._wide(samples)):
            self.watch.check()
            index = torch.from_numpy(where[part]).to(x.device)
            with torch.no_grad():
                out = torch.func.functional_call(self.module, state, (x.index_select(0, index),))
                target = y.index_select(0, index)
                losses.append(self.task.loss(out, target).double().cpu())
                if "accuracy" in measurable(out, target, classes):
                    hits.append(correct(out, target).cpu())
        return torch.cat(losses).numpy(), torch.cat(hits).numpy() if hits else None

    def _wide(self, samples: Samples) -> int:
        """Return how many numbers one sample takes on its way through the module, roughly."""
        return int(samples.x[0].numel() * (SPREAD if self.task.of_images else 1))

    def _gradient(self, model: Tensor, buffers: Tensor | None, slab: Slab, where: Ids) -> Tensor:
        flat = model.detach().clone().requires_grad_()
        state = self._state(flat, buffers)
        for part in _chunks(len(where), slab.x[0].numel()):
            self.watch.check()
            index = torch.from_numpy(where[part]).to(slab.x.device)
            out = torch.func.functional_call(self.module, state, (slab.x.index_select(0, index),))
            loss = self.task.loss(out, slab.y.index_select(0, index)).sum() / len(where)
            torch.autograd.backward(loss, retain_graph=True)
        assert flat.grad is not None
        return flat.grad

    def _state(self, model: Tensor, buffers: Tensor | None) -> dict[str, Tensor]:
        state = self.task.layout.views(model)
        if buffers is not None:
            state |= {slot.name: slot.view(buffers) for slot in self.task.layout.buffers}
        return state


def _first_alike(requests: Sequence[Evaluate]) -> list[int]:
    """Return for each request the first with the same model: before round 1, arms of a seed share theirs."""
    first_alike: list[int] = []
    for at, request in enumerate(requests):
        earlier = [first for first in dict.fromkeys(first_alike) if request.round == requests[first].round == 0]
        same = (first for first in earlier if _is_same_model(requests[first], request))
        first_alike.append(next(same, at))
    return first_alike


def _is_same_model(one: Evaluate, other: Evaluate) -> bool:
    if one.buffers is None or other.buffers is None:
        return one.buffers is other.buffers and torch.equal(one.model, other.model)
    return torch.equal(one.model, other.model) and torch.equal(one.buffers, other.buffers)


def _classes(task: Task, request: Evaluate | EvaluateEach) -> int | None:
    """Return the number of classes where an accuracy is asked for."""
    return task.federation.num_classes if "accuracy" in request.metrics else None


def evaluation_samples(task: Task, request: Evaluate) -> Samples | None:
    """Return the test set, or the hold-outs of the clients that are now in the objective."""
    federation = task.federation.at(request.round)
    holdout = federation.holdout
    if request.clients is None or holdout is None:
        return federation.test
    slab = holdout.fetch(request.clients)
    rows = positions(slab)
    return Samples(slab.x[rows], slab.y[rows])


def _holdout_of(task: Task, request: Score) -> Samples | None:
    holdout = task.federation.at(request.round).holdout
    return None if holdout is None or request.client is None else holdout.of(request.client)


def _sizes(count: int, group: int) -> list[int]:
    """Return the sizes of groups of at most so many."""
    return [min(group, count - begin) for begin in range(0, count, group)]


def _chunks(count: int, values: int) -> Iterator[slice]:
    size = max(1, CHUNK_VALUES // max(1, values))
    return (slice(at, min(at + size, count)) for at in range(0, count, size))


def _probe_rows(slab: Slab, request: Probe) -> tuple[Ids, Ids]:
    """Return the store rows a probe looks at, client by client, and how many each client has."""
    if request.batch_size is None:
        counts = slab.sizes
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
    else:
        keys = request.streams.keys("probe", request.round, request.clients)
        ones = np.ones(len(request.clients), dtype=np.int64)
        drawn = draw_batches(keys, slab.sizes, ones, request.batch_size, "shuffled")
        counts = drawn.counts[:, 0]
        within = drawn.positions[:, 0][np.arange(request.batch_size) < counts[:, None]]
    where = within + np.repeat(slab.starts, counts)
    return (where if slab.order is None else slab.order.numpy()[where].astype(np.int64)), counts
