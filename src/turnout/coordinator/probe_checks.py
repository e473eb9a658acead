"""Checks of answers to probes, scores and evaluations: one that fits is made of what came, as far as it can be used."""

from typing import Any

import numpy as np
import torch

from turnout.array_types import Floats
from turnout.coordinator.findings import MOST_EXAMPLES, Findings, are_numbers, is_like, marked
from turnout.metrics import can_be_metric
from turnout.requests import Evaluate, Evaluated, Probe, Probed, Score, Scored


def fitting(request: Probe | Score | Evaluate, answer: Any, findings: Findings) -> Any:
    """Return an answer that fits the request, made of what came as far as it can be used."""
    if isinstance(request, Probe):
        return _probed(request, answer, findings)
    if isinstance(request, Score):
        return _scored(request, answer, findings)
    if isinstance(answer, Evaluated) and all(
        can_be_metric(k) and isinstance(v, float) for k, v in answer.metrics.items()
    ):
        return answer
    findings.notes.append("the model could not be evaluated")
    return Evaluated(metrics={})


def _probed(request: Probe, answer: Any, findings: Findings) -> Probed:
    """Return a number or a row for each client; those that said nothing of use count as the least in need."""
    count = len(request.clients)
    fits = isinstance(answer, Probed) and np.array_equal(answer.clients, request.clients)
    if request.what == "loss":
        loss = _numbers(answer.loss if fits else None, count)
        bad = ~np.isfinite(loss)
        least = float(loss[~bad].min()) if not bad.all() else 0.0
        findings.refused |= marked(request.clients[bad], "the loss is not a number")
        loss = np.where(bad, least, loss)
        said = answer.accuracy if fits else None
        accuracy = None if said is None else np.nan_to_num(_numbers(said, count)).clip(0.0, 1.0)
        return Probed(clients=request.clients, loss=loss, accuracy=accuracy, samples=_samples(answer), unusable=bad)
    shape = (count, request.model.numel())
    rows = answer.gradient if fits and is_like(answer.gradient, shape, request.model) else None
    if rows is None:
        findings.refused |= marked(request.clients, "the gradient has the wrong shape or type")
        return Probed(clients=request.clients, gradient=request.model.new_zeros(shape), samples=_samples(answer))
    rows = rows.detach()
    bad = ~np.isfinite(torch.linalg.vector_norm(rows, dim=1).double().cpu().numpy())
    if bad.any():
        findings.refused |= marked(request.clients[bad], "the gradient is not finite")
        rows = torch.where(torch.from_numpy(~bad).to(rows.device)[:, None], rows, torch.zeros_like(rows[:1]))
    return Probed(clients=request.clients, gradient=rows, samples=_samples(answer))


def _numbers(said: Any, count: int) -> Floats:
    """Return so many numbers, which are NaN if something else was said."""
    return said.astype(float) if are_numbers(said, count) else np.full(count, np.nan)


def _samples(answer: Any) -> int:
    said: Any = answer.samples if isinstance(answer, Probed | Scored) else 0
    return said if isinstance(said, int) and 0 <= said <= MOST_EXAMPLES else 0


def _scored(request: Score, answer: Any, findings: Findings) -> Scored:
    """Return a loss for each model; one that is not a number counts as the worst there is."""
    loss = _numbers(answer.loss if isinstance(answer, Scored) else None, len(request.models))
    bad = ~np.isfinite(loss)
    if bad.all():
        findings.notes.append("the models could not be scored")
    worst = float(loss[~bad].max()) if not bad.all() else 0.0
    return Scored(loss=np.where(bad, worst, loss), samples=_samples(answer))
