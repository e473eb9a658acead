"""Checks of whatever comes back from the world, in one place, before anything uses it.

Every answer becomes one that fits its request: one entry per client that returned, in order, with those that cannot
be used marked as not finite, which the round already knows how to do without. A client's update is rejected when

    nothing came of it, or more than one answer did         the update has the wrong shape or type
    the answer is for another round                         the update is not finite
    the number of local steps is not what was expected      the client reports an absurd number of samples
    a second row, or a row to remember, is not finite       the loss is not a finite number
    the update norm exceeds trust.max_norm                  nobody had asked the client

`trust.policy` decides what happens then: "reject" leaves the client out, "clip" does too but scales down updates that
are only too long, "stop" ends the run. The round's record has the client and the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.asking import nothing_probed
from turnout.coordinator.findings import MOST_EXAMPLES, Findings, are_numbers, is_like, marked
from turnout.coordinator.plan import Plan, Trust
from turnout.coordinator.probe_checks import fitting
from turnout.errors import UpdateError
from turnout.generators import relay
from turnout.ids import are_equal
from turnout.orders import Order
from turnout.requests import (
    Collect,
    Dispatch,
    Evaluate,
    Probe,
    Record,
    Reply,
    Returns,
    Score,
    Steps,
    Train,
    Trained,
)
from turnout.rows import finite_rows, is_finite

T = TypeVar("T")
TENSORS = ("reduced", "delta", "extra", "buffers", "next_rows", "next_sum")  # of an answer to Fit
TENSORS_OF = attrgetter(*TENSORS)
CHECKED = (Record, Train, Collect, Probe, Score, Evaluate)  # the other answers are the world's own
EACH = slice(None)  # the places of those asked, where the answer has them in order


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an answer must fit."""

    order: Order
    clients: Ids  # who returned, ascending
    steps: Ids  # how far each got; −1 where only the client can say
    asked: Ids  # local steps that each was asked for
    coefficients: Floats | None = None  # of the sum that came, where one was taken
    rows_checked: bool = False  # rows to remember were checked where they were made

    @property
    def model(self) -> Tensor:
        """The model that was sent."""
        return self.order.model


def with_trust(plan: Plan, steps: Steps[T]) -> Steps[T]:
    """Pass a run's requests on, and let only answers through that fit them. Train becomes Dispatch and Collect."""
    findings = Findings()

    def reply(request: Any) -> Reply:
        nonlocal findings
        if not isinstance(request, CHECKED):
            return (yield request)
        if isinstance(request, Record):
            record, findings = findings.with_notes(request), Findings()
            return (yield record)
        answer: Any
        if isinstance(request, Train):
            yield Dispatch(order=request.order)
            rows = Collect(order=request.order, clients=request.clients, steps=request.order.steps, wants_rows=True)
            returns = yield rows
            answer = with_origin(request.order, returns, _collected(rows, returns, plan.trust, findings))
        elif isinstance(request, Collect):
            asked = replace(request, wants_rows=True) if plan.trust.max_norm is not None else request
            returns = yield asked
            answer = returns, _collected(asked, returns, plan.trust, findings)  # a sum would hide who made it long
        elif isinstance(request, Probe) and len(request.clients) == 0:
            answer = nothing_probed(request)
        else:
            answer = fitting(request, (yield request), findings)
        if plan.trust.policy == "stop" and (findings.refused or findings.notes):
            problems = [*(f"client {c}: {reason}" for c, reason in findings.refused.items()), *findings.notes]
            raise UpdateError(
                f'An update in round {request.round} cannot be used, and trust.policy is "stop". '
                f"{'; '.join(problems)}. "
                'Look at the clients named, or set trust.policy = "reject" to go on without them.'
            )
        return answer

    return (yield from relay(steps, reply))


def _collected(request: Collect, returns: Returns, trust: Trust, findings: Findings) -> Trained:
    """Return an answer that can be used, made of what was collected."""
    if not len(returns.clients):
        return _of_nobody(request.order)
    everyone = are_equal(request.clients, returns.clients)
    asked = request.steps if everyone else request.steps[np.searchsorted(request.clients, returns.clients)]
    expected = Expectation(
        request.order, returns.clients, returns.steps, asked, returns.coefficients, returns.rows_checked
    )
    return fitting_updates(expected, returns.work, trust, findings)


def with_origin(order: Order, returns: Returns, answer: Trained) -> Trained:
    """Return an answer with what the world knows of how it came."""
    prob, seconds = returns.availability_prob, returns.seconds
    return replace(answer, availability_prob=prob, seconds=seconds, asked=order.clients)


def _of_nobody(order: Order) -> Trained:
    """Return the answer in which no update came."""
    none, rows = np.zeros(0, dtype=np.int64), order.model.new_zeros(0, order.model.numel())
    return Trained(clients=none, steps=none, loss=np.zeros(0), finite=np.zeros(0, bool), delta=rows)


def fitting_updates(expected: Expectation, answer: Any, trust: Trust, findings: Findings) -> Trained:
    """Return updates that fit what was expected; those that cannot be used are marked, with the reason."""
    whole = _misfit(expected, answer)
    if whole is not None:
        return _nothing(expected, whole, findings)
    answer = _without_graph(answer)
    place, reasons = _places(expected.clients, answer.clients, findings)
    if answer.reasons:
        known = answer.reasons
        reasons |= {c: known[c] for c in expected.clients.tolist() if c in known and c not in reasons}
    reasons |= _wrong_steps(expected, answer.steps[place], reasons)
    if answer.num_examples is not None:
        said = dict(zip(expected.clients.tolist(), answer.num_examples[place].tolist(), strict=True))
        absurd = {client: n for client, n in said.items() if not 0 < n <= MOST_EXAMPLES}
        reasons = {client: f"reports {n} samples" for client, n in absurd.items()} | reasons
    rows_checked = expected.rows_checked and answer.delta is None
    for rows, what in ((answer.extra, "second row"), (None if rows_checked else answer.next_rows, "row to remember")):
        if rows is not None and len(rows):
            reasons = _unsound(expected.clients, finite_rows([rows])[place], f"the {what} is not finite") | reasons
    if answer.delta is not None:
        return _with_rows(expected, answer, place, reasons, (trust, findings))
    reasons = _not_numbers(expected, answer, place, answer.finite[place].astype(bool, copy=False)) | reasons
    if reasons:
        findings.refuse(reasons)
    elif not (_is_finite(answer.reduced) and _is_finite(answer.next_sum) and _norms_are_sound(answer)):
        return _nothing(expected, "the sum it is part of is not finite", findings)
    elif not answer.reasons and answer.finite.dtype == bool and answer.clients.dtype == expected.clients.dtype:
        fits: Trained = answer  # as nearly all do
        return fits
    finite = _sound(expected.clients, reasons)
    passed: Trained = replace(answer, clients=expected.clients, finite=finite, reasons=reasons)
    return passed


def _wrong_steps(expected: Expectation, done: Ids, reasons: Mapping[int, str]) -> dict[int, str]:
    """Return whose number of local steps cannot be: not as known, or beyond what was asked."""
    if are_equal(done, expected.steps) and done.min() >= 0:
        return {}
    known, asked, wrong = expected.steps >= 0, expected.asked, {}
    for at in np.flatnonzero(np.where(known, done != expected.steps, (done < 1) | (done > asked))):
        need = str(expected.steps[at]) if known[at] else f"1 to {asked[at]}"
        wrong[int(expected.clients[at])] = f"expected {need} local steps, got {done[at]}"
    return {client: reason for client, reason in wrong.items() if client not in reasons}


def _without_graph(answer: Trained) -> Trained:
    """Return the answer with tensors that belong to no graph: an engine may have left theirs on."""
    tensors = zip(TENSORS, TENSORS_OF(answer), strict=True)
    tied = {name: value.detach() for name, value in tensors if value is not None and value.requires_grad}
    return replace(answer, **tied) if tied else answer


def _misfit(expected: Expectation, answer: Any) -> str | None:
    """Return what makes the whole answer useless."""
    if not isinstance(answer, Trained):
        return f"the answer is of type {type(answer).__name__}"
    if answer.round is not None and answer.round != expected.order.round:
        return f"the answer is for round {answer.round}"
    count, size = np.size(answer.clients), expected.model.numel()
    if count == 0:
        return "no answer came"
    if not (are_numbers(answer.clients, count, "iu") and are_numbers(answer.steps, count, "iu")):
        return "the answer does not say whose it is and how many steps were done"
    optional = (answer.num_examples is None or are_numbers(answer.num_examples, count)) and (
        answer.square_norms is None or are_numbers(answer.square_norms, count)
    )
    if not (optional and are_numbers(answer.loss, count) and are_numbers(answer.finite, count)):
        return f"the answer's columns are not {count} numbers each"
    for rows in (answer.delta, answer.extra, answer.next_rows):
        if rows is not None and not is_like(rows, (count, size), expected.model):
            return f"the answer's rows do not have {size} numbers of type {expected.model.dtype}"
    for vector in (answer.reduced, answer.next_sum):
        if vector is not None and not is_like(vector, (size,), expected.model):
            return f"the answer's sum does not have {size} numbers of type {expected.model.dtype}"
    lacks_sum = expected.coefficients is None or answer.reduced is None
    lacks_rows = expected.order.refreshes_from_updates and (answer.next_rows is None or answer.next_sum is None)
    if answer.delta is None and (lacks_sum or lacks_rows):
        return "the answer leaves out what was asked for"
    if answer.delta is None and not are_equal(answer.clients, expected.clients):
        return "the answer is a sum of others than were asked"
    buffers, sent = answer.buffers, expected.order.buffers
    if buffers is not None and (sent is None or not is_like(buffers, tuple(sent.shape), sent)):
        return "the answer's running statistics have the wrong shape"
    return None


def _is_finite(vector: Tensor | None) -> bool:
    return vector is None or is_finite(vector)


def _norms_are_sound(answer: Trained) -> bool:
    norms = answer.square_norms
    return norms is None or bool(np.isfinite(norms).all() and (norms >= 0).all())


def _nothing(expected: Expectation, reason: str, findings: Findings) -> Trained:
    """Return an answer of which nothing can be used."""
    reasons = marked(expected.clients, reason)
    findings.refuse(reasons)
    count, model = len(expected.clients), expected.model
    return Trained(
        clients=expected.clients,
        steps=np.maximum(expected.steps, 0),
        loss=np.full(count, np.nan),
        finite=np.zeros(count, dtype=bool),
        delta=model.new_full((count, model.numel()), torch.nan),
        square_norms=np.full(count, np.nan),
        reasons=reasons,
    )


def _unsound(clients: Ids, sound: Any, reason: str) -> dict[int, str]:
    """Return the reason for each client that is not sound."""
    return {} if sound.all() else marked(clients[~sound], reason)


def _not_numbers(expected: Expectation, answer: Trained, place: Ids | slice, finite: Any) -> dict[int, str]:
    """Return whose change or loss is not finite; of a client that diverged both are, and its change is the matter."""
    lost = _unsound(expected.clients, np.isfinite(answer.loss[place]), "the loss is not a number")
    return lost | _unsound(expected.clients, finite, "the update is not finite")


def _places(asked: Ids, returned: Ids, findings: Findings) -> tuple[Ids | slice, dict[int, str]]:
    """Return where each asked client is in the answer (anywhere, if it is not), and who is there not exactly once."""
    if are_equal(asked, returned):
        return EACH, {}
    order = np.argsort(returned, kind="stable")
    left, right = (np.searchsorted(returned[order], asked, side=side) for side in ("left", "right"))
    times = right - left
    reasons = {int(c): "no answer came" for c in asked[times == 0]}
    reasons |= {int(c): f"answered {n} times" for c, n in zip(asked, times, strict=True) if n > 1}
    findings.refused |= {int(c): "answered without being asked" for c in np.setdiff1d(returned, asked)}
    return order[np.minimum(left, len(returned) - 1)], reasons


def _sound(clients: Ids, reasons: Mapping[int, str]) -> Any:
    if not reasons:
        return np.ones(len(clients), dtype=bool)
    return np.array([int(client) not in reasons for client in clients], dtype=bool)


def _with_rows(
    expected: Expectation, answer: Trained, place: Ids | slice, reasons: dict[int, str], how: tuple[Trust, Findings]
) -> Trained:
    """Return the rows of those asked, in order; rows that cannot be used are not numbers."""
    trust, findings = how
    assert answer.delta is not None
    index: Any = None if isinstance(place, slice) else torch.from_numpy(place).to(answer.delta.device)
    in_order = isinstance(place, slice) or np.array_equal(place, np.arange(len(answer.clients)))
    delta = answer.delta if in_order else answer.delta[index]
    norms, measured = np.zeros(len(expected.clients)), expected.order.wants_norms or trust.max_norm is not None
    if measured:
        norms = torch.linalg.vector_norm(delta, dim=1).double().cpu().numpy()
    finite = finite_rows([delta]) & np.isfinite(norms) & answer.finite[place].astype(bool)
    reasons = _not_numbers(expected, answer, place, finite) | reasons
    good = _sound(expected.clients, reasons)
    long = good & (norms > (np.inf if trust.max_norm is None else trust.max_norm))
    if trust.policy == "clip":
        delta, norms = _shortened(delta, norms, long, trust.max_norm)
        findings.clipped += int(long.sum())
    else:
        reasons |= {
            int(client): f"the update norm exceeds trust.max_norm = {trust.max_norm:.4g}"
            for client in expected.clients[long]
        }
        good &= ~long
    findings.refuse(reasons)
    if not good.all():
        delta = torch.where(torch.from_numpy(good).to(delta.device)[:, None], delta, delta.new_tensor(torch.nan))
    buffers, total = answer.buffers, answer.next_sum
    has_next = in_order and total is not None and is_finite(total)  # else made of the rows
    return Trained(
        clients=expected.clients,
        steps=answer.steps[place],
        loss=answer.loss[place],
        finite=good,
        delta=delta,
        extra=answer.extra if in_order or answer.extra is None else answer.extra[index],
        square_norms=norms**2 if measured else None,
        buffers=buffers if buffers is None or is_finite(buffers) else expected.order.buffers,
        next_rows=answer.next_rows if has_next else None,
        next_sum=answer.next_sum if has_next else None,
        round=expected.order.round,
        reasons=reasons,
    )


def _shortened(delta: Tensor, norms: Floats, long: Any, max_norm: float | None) -> tuple[Tensor, Floats]:
    """Return the rows with those that are too long at the length allowed."""
    if max_norm is None or not long.any():
        return delta, norms
    factor = np.where(long, max_norm / np.where(long, norms, 1.0), 1.0)
    return delta * delta.new_tensor(factor)[:, None], norms * factor
