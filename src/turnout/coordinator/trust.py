"""Whatever an engine returns is looked at before anything uses it.

Every answer becomes one that fits its request: one entry per client that was asked, in order, with those that cannot
be used marked as not finite, which the round already knows how to do without. A client is turned away when

    nothing came of it, or more than one answer did         its change has the wrong shape or type
    its answer is for another round                         its change is not finite
    it did other than the steps it was counted on for       it says it has an absurd number of samples
    its second row or its next control is not finite        its loss is not a finite number
    its change is longer than trust.max_norm                nobody had asked it

`trust.policy` says what then: "reject" leaves the client out, "clip" does too but shortens changes that are only too
long, "stop" ends the run. What was done is in the round's record, with the client and the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.plan import Plan, Trust
from turnout.errors import UpdateError
from turnout.metrics import can_be_metric
from turnout.requests import Evaluate, Evaluated, Probe, Probed, Record, Score, Scored, Steps, Train, Trained
from turnout.rows import finite_rows, is_finite

T = TypeVar("T")
MOST_NOTES = 20  # told of in a record
MOST_EXAMPLES = 10**12
TENSORS = ("reduced", "delta", "extra", "buffers", "controls", "control_sum")  # of an answer to Train


@dataclass(slots=True)
class Findings:
    """What was wrong with the answers of a round."""

    refused: dict[int, str] = field(default_factory=dict)  # client -> reason
    trained: set[int] = field(default_factory=set)  # those of them whose training was refused: the answer says why, too
    notes: list[str] = field(default_factory=list)
    clipped: int = 0

    def refuse(self, reasons: Mapping[int, str]) -> None:
        """Note whose training cannot be used."""
        self.refused |= reasons
        self.trained |= set(reasons)

    def told(self, record: Record) -> Record:
        """Return the record with what was found besides the clients that it rejects."""
        if not (self.refused or self.notes or self.clipped):
            return record
        on_the_way = self.trained & (set(record.asked.tolist()) - set(record.answered.tolist()))
        told = on_the_way | set(record.rejected)  # an answer on its way is rejected in the round in which it comes in
        others = [f"client {c}: {reason}" for c, reason in self.refused.items() if c not in told]
        notes = [*self.notes, *others]
        if len(notes) > MOST_NOTES:
            notes = [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} more"]
        metrics = {**record.metrics, "clipped": float(self.clipped)} if self.clipped else record.metrics
        return replace(record, events=(*record.events, *notes), metrics=metrics)


def with_trust(plan: Plan, steps: Steps[T]) -> Steps[T]:
    """Pass a run's requests on, and let only answers through that fit them."""
    found, answer = Findings(), None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if isinstance(request, Record):
            answer = yield found.told(request)
            found = Findings()
            continue
        if isinstance(request, Train | Probe) and len(request.clients) == 0:  # nobody to go to an engine for
            answer = _of_nobody(request)
            continue
        asked = request
        if isinstance(request, Train) and plan.trust.max_norm is not None:
            asked = replace(request, coefficients=None)  # a sum hides who made it long
        answer = fitting(asked, (yield asked), plan.trust, found)
        if plan.trust.policy == "stop" and (found.refused or found.notes):
            told = "; ".join([*(f"client {c}: {reason}" for c, reason in found.refused.items()), *found.notes])
            raise UpdateError(
                f'An answer in round {request.round} cannot be used, and trust.policy is "stop". {told}. '
                'Look at the clients named, or set trust.policy = "reject" to go on without them.'
            )


def _of_nobody(request: Train | Probe) -> Trained | Probed:
    """Return the answer to a request that names no clients."""
    nobody, no_rows = request.clients, request.model.new_zeros(0, request.model.numel())
    if isinstance(request, Probe):
        is_loss = request.what == "loss"
        return Probed(clients=nobody, loss=np.zeros(0) if is_loss else None, gradient=None if is_loss else no_rows)
    return Trained(clients=nobody, steps=request.steps, loss=np.zeros(0), finite=np.zeros(0, bool), delta=no_rows)


def fitting(request: Any, answer: Any, trust: Trust, found: Findings) -> Any:
    """Return an answer that fits the request, made of what came as far as it can be used."""
    if isinstance(request, Train):
        return _trained(request, answer, trust, found)
    if isinstance(request, Probe):
        return _probed(request, answer, found)
    if isinstance(request, Score):
        return _scored(request, answer, found)
    assert isinstance(request, Evaluate)
    if isinstance(answer, Evaluated) and all(
        can_be_metric(k) and isinstance(v, float) for k, v in answer.metrics.items()
    ):
        return answer
    found.notes.append("the model could not be measured")
    return Evaluated(metrics={})


def _trained(request: Train, answer: Any, trust: Trust, found: Findings) -> Trained:
    whole = _misfit(request, answer)
    if whole is not None:
        return _nothing(request, whole, found)
    answer = _without_graph(answer)
    place, reasons = _places(request.clients, answer.clients, found)
    done = answer.steps[place]
    reasons |= {
        int(request.clients[at]): f"did {done[at]} steps, and {request.steps[at]} were counted on"
        for at in np.flatnonzero(done != request.steps)
        if int(request.clients[at]) not in reasons
    }
    if answer.num_examples is not None:
        said = dict(zip(request.clients.tolist(), answer.num_examples[place].tolist(), strict=True))
        absurd = {client: n for client, n in said.items() if not 0 < n <= MOST_EXAMPLES}
        reasons = {client: f"says it has {n} samples" for client, n in absurd.items()} | reasons
    for rows, what in ((answer.extra, "second row"), (answer.controls, "next control")):
        if rows is not None and len(rows) and not _vouched(request, answer, rows):
            reasons = _marked(request.clients[~finite_rows([rows])[place]], f"its {what} is not finite") | reasons
    if answer.delta is not None:
        return _with_rows(request, answer, place, reasons, (trust, found))
    reasons = _not_numbers(request, answer, place, answer.finite[place].astype(bool)) | reasons
    sums = [vector for vector in (answer.reduced, answer.control_sum) if vector is not None]
    if not reasons and not (all(is_finite(s) for s in sums) and _norms_are_sound(answer)):
        return _nothing(request, "the sum it is part of is not finite", found)
    found.refuse(reasons)
    finite = _sound(request.clients, reasons)
    passed: Trained = replace(answer, clients=request.clients, finite=finite, reasons=reasons)
    return passed


def _without_graph(answer: Trained) -> Trained:
    """Return the answer with tensors that belong to no graph: an engine may have left theirs on."""
    tensors = {name: getattr(answer, name) for name in TENSORS}
    tied = {name: value.detach() for name, value in tensors.items() if value is not None and value.requires_grad}
    return replace(answer, **tied) if tied else answer


def _vouched(request: Train, answer: Trained, rows: Tensor) -> bool:
    """Whether an engine beside us wrote these rows where we keep them: its sums have told it which are finite."""
    return answer.delta is None and request.controls is not None and request.controls.table.is_spare(rows)


def _misfit(request: Train, answer: Any) -> str | None:
    """Return what makes the whole answer useless."""
    if not isinstance(answer, Trained):
        return f"the answer is of type {type(answer).__name__}"
    if answer.round is not None and answer.round != request.round:
        return f"the answer is for round {answer.round}"
    count, size = np.size(answer.clients), request.model.numel()
    if count == 0:
        return "no answer came"
    if not (_are_numbers(answer.clients, count, "iu") and _are_numbers(answer.steps, count, "iu")):
        return "the answer does not say whose it is and how many steps were done"
    optional = [c for c in (answer.num_examples, answer.square_norms) if c is not None]
    if not all(_are_numbers(column, count) for column in (answer.loss, answer.finite, *optional)):
        return f"the answer's columns are not {count} numbers each"
    for rows in (answer.delta, answer.extra, answer.controls):
        if rows is not None and not _is_like(rows, (count, size), request.model):
            return f"the answer's rows do not have {size} numbers of type {request.model.dtype}"
    for vector in (answer.reduced, answer.control_sum):
        if vector is not None and not _is_like(vector, (size,), request.model):
            return f"the answer's sum does not have {size} numbers of type {request.model.dtype}"
    wants_controls = request.controls is not None and request.controls.scale is not None
    lacks_sum = request.coefficients is None or answer.reduced is None
    lacks_controls = wants_controls and (answer.controls is None or answer.control_sum is None)
    if answer.delta is None and (lacks_sum or lacks_controls):
        return "the answer leaves out what was asked for"
    if answer.delta is None and not np.array_equal(answer.clients, request.clients):
        return "the answer is a sum of others than were asked"
    buffers = answer.buffers
    if buffers is not None and (
        request.buffers is None or not _is_like(buffers, tuple(request.buffers.shape), request.buffers)
    ):
        return "the answer's running statistics have the wrong shape"
    return None


def _is_like(rows: Any, shape: tuple[int, ...], model: Tensor) -> bool:
    return isinstance(rows, Tensor) and tuple(rows.shape) == shape and rows.dtype == model.dtype


def _are_numbers(column: Any, count: int, kinds: str = "biuf") -> bool:
    return isinstance(column, np.ndarray) and column.shape == (count,) and column.dtype.kind in kinds


def _norms_are_sound(answer: Trained) -> bool:
    norms = answer.square_norms
    return norms is None or bool(np.isfinite(norms).all() and (norms >= 0).all())


def _nothing(request: Train, reason: str, found: Findings) -> Trained:
    """Return an answer of which nothing can be used."""
    reasons = _marked(request.clients, reason)
    found.refuse(reasons)
    count, model = len(request.clients), request.model
    return Trained(
        clients=request.clients,
        steps=request.steps,
        loss=np.full(count, np.nan),
        finite=np.zeros(count, dtype=bool),
        delta=model.new_full((count, model.numel()), torch.nan),
        square_norms=np.full(count, np.nan),
        reasons=reasons,
    )


def _marked(clients: Ids, reason: str) -> dict[int, str]:
    return dict.fromkeys(clients.tolist(), reason)


def _not_numbers(request: Train, answer: Trained, place: Ids, finite: Any) -> dict[int, str]:
    """Return whose change or loss is not finite; of a client that diverged both are, and its change is the matter."""
    lost = _marked(request.clients[~np.isfinite(answer.loss[place])], "its loss is not a number")
    return lost | _marked(request.clients[~finite], "its change is not finite")


def _places(asked: Ids, came: Ids, found: Findings) -> tuple[Ids, dict[int, str]]:
    """Return where each asked client is in the answer (anywhere, if it is not), and who is there not exactly once."""
    if np.array_equal(asked, came):
        return np.arange(len(asked)), {}
    order = np.argsort(came, kind="stable")
    left, right = (np.searchsorted(came[order], asked, side=side) for side in ("left", "right"))
    times = right - left
    reasons = {int(c): "no answer came" for c in asked[times == 0]}
    reasons |= {int(c): f"answered {n} times" for c, n in zip(asked, times, strict=True) if n > 1}
    found.refused |= {int(c): "answered without being asked" for c in np.setdiff1d(came, asked)}
    return order[np.minimum(left, len(came) - 1)], reasons


def _sound(clients: Ids, reasons: Mapping[int, str]) -> Any:
    return np.array([int(client) not in reasons for client in clients], dtype=bool)


def _with_rows(
    request: Train, answer: Trained, place: Ids, reasons: dict[int, str], how: tuple[Trust, Findings]
) -> Trained:
    """Return the rows of those asked, in order; rows that cannot be used are not numbers."""
    trust, found = how
    assert answer.delta is not None
    in_order = np.array_equal(place, np.arange(len(answer.clients)))
    index = torch.from_numpy(place).to(answer.delta.device)
    delta = answer.delta if in_order else answer.delta[index]
    norms, measured = np.zeros(len(place)), request.wants_norms or trust.max_norm is not None
    if measured:
        norms = torch.linalg.vector_norm(delta, dim=1).double().cpu().numpy()
    finite = finite_rows([delta]) & np.isfinite(norms) & answer.finite[place].astype(bool)
    reasons = _not_numbers(request, answer, place, finite) | reasons
    good = _sound(request.clients, reasons)
    long = good & (norms > (np.inf if trust.max_norm is None else trust.max_norm))
    if trust.policy == "clip":
        delta, norms = _shortened(delta, norms, long, trust.max_norm)
        found.clipped += int(long.sum())
    else:
        reasons |= {
            int(client): f"its change is {norm:.4g} long, and {trust.max_norm:.4g} is believed"
            for client, norm in zip(request.clients[long], norms[long], strict=True)
        }
        good &= ~long
    found.refuse(reasons)
    if not good.all():
        delta = torch.where(torch.from_numpy(good).to(delta.device)[:, None], delta, delta.new_tensor(torch.nan))
    buffers, total = answer.buffers, answer.control_sum
    has_controls = in_order and total is not None and is_finite(total)  # else made of the rows
    return Trained(
        clients=request.clients,
        steps=request.steps,
        loss=answer.loss[place],
        finite=good,
        delta=delta,
        extra=answer.extra if in_order or answer.extra is None else answer.extra[index],
        square_norms=norms**2 if measured else None,
        buffers=buffers if buffers is None or is_finite(buffers) else request.buffers,
        controls=answer.controls if has_controls else None,
        control_sum=answer.control_sum if has_controls else None,
        round=request.round,
        reasons=reasons,
    )


def _shortened(delta: Tensor, norms: Floats, long: Any, max_norm: float | None) -> tuple[Tensor, Floats]:
    """Return the rows with those that are too long at the length allowed."""
    if max_norm is None or not long.any():
        return delta, norms
    factor = np.where(long, max_norm / np.where(long, norms, 1.0), 1.0)
    return delta * delta.new_tensor(factor)[:, None], norms * factor


def _probed(request: Probe, answer: Any, found: Findings) -> Probed:
    """Return a number or a row for each client; those that said nothing of use count as the least in need."""
    count = len(request.clients)
    fits = isinstance(answer, Probed) and np.array_equal(answer.clients, request.clients)
    if request.what == "loss":
        loss = _numbers(answer.loss if fits else None, count)
        bad = ~np.isfinite(loss)
        least = float(loss[~bad].min()) if not bad.all() else 0.0
        found.refused |= _marked(request.clients[bad], "its loss is not a number")
        return Probed(clients=request.clients, loss=np.where(bad, least, loss), samples=_samples(answer))
    shape = (count, request.model.numel())
    rows = answer.gradient if fits and _is_like(answer.gradient, shape, request.model) else None
    if rows is None:
        found.refused |= _marked(request.clients, "its gradient has the wrong shape or type")
        return Probed(clients=request.clients, gradient=request.model.new_zeros(shape), samples=_samples(answer))
    rows = rows.detach()
    bad = ~np.isfinite(torch.linalg.vector_norm(rows, dim=1).double().cpu().numpy())
    if bad.any():
        found.refused |= _marked(request.clients[bad], "its gradient is not finite")
        rows = torch.where(torch.from_numpy(~bad).to(rows.device)[:, None], rows, torch.zeros_like(rows[:1]))
    return Probed(clients=request.clients, gradient=rows, samples=_samples(answer))


def _numbers(said: Any, count: int) -> Floats:
    """Return so many numbers, which are NaN if something else was said."""
    return said.astype(float) if _are_numbers(said, count) else np.full(count, np.nan)


def _samples(answer: Any) -> int:
    said = getattr(answer, "samples", 0)
    return said if isinstance(said, int) and 0 <= said <= MOST_EXAMPLES else 0


def _scored(request: Score, answer: Any, found: Findings) -> Scored:
    """Return a loss for each model; one that is not a number counts as the worst there is."""
    loss = _numbers(answer.loss if isinstance(answer, Scored) else None, len(request.models))
    bad = ~np.isfinite(loss)
    if bad.all():
        found.notes.append("the models could not be scored")
    worst = float(loss[~bad].max()) if not bad.all() else 0.0
    return Scored(loss=np.where(bad, worst, loss), samples=_samples(answer))
