"""The cohort's work: clients are handed an order, and what comes back becomes updates, facts and one outcome per job.

There is one path for a server that waits for everyone and one that steps on the first few updates: they differ in
when the collection is closed, and in how much an old update counts.
"""

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.client_state import settle_clients, shared_of
from turnout.coordinator.jobs import Jobs, merged
from turnout.coordinator.orders import order_for
from turnout.coordinator.plan import Plan, State
from turnout.costs import NO_COSTS, Costs
from turnout.generators import relay
from turnout.ids import are_equal, is_among
from turnout.orders import Order
from turnout.progress import Progress
from turnout.protocols import Choice, View
from turnout.requests import NOBODY, Collect, Dispatch, Outcome, Reply, Steps, Train, Trained
from turnout.row_table import RowTable
from turnout.rows import Facts
from turnout.submodels import Parts

T = TypeVar("T")


@dataclass(slots=True)
class Collected:
    """What the round collected, after bad updates were taken out."""

    asked: Ids  # clients whose job began or ended in this round, ascending
    multiplicity: Ids
    asked_steps: Ids
    done_steps: Ids  # of those asked; 0 where nothing came
    facts: Facts  # of the accepted
    answer: Trained | None  # None: no update was accepted
    coefficients: Floats | None = None
    staleness: Ids | None = None  # of the accepted, where the server does not wait
    progress: Progress | None = None  # as the world reports it
    late: Ids = field(default_factory=lambda: NOBODY)
    at_work: Ids = field(default_factory=lambda: NOBODY)
    rejected: dict[int, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    num_handed_out: int = 0  # clients that were handed work in this round
    worked: tuple[Ids, Ids] = (NOBODY, NOBODY)  # clients whose work came back, rejected or not, and their steps
    round_seconds: float = 0.0
    events: tuple[str, ...] = ()
    step_kept: bool = True  # False: the server step that the updates made was dropped
    sizes: Ids | None = None  # by client: samples that it trained on; None: all that it has
    assignment: Ids | None = None  # by client: the model it trained, −1 for a client not asked
    kept: Ids | None = None  # whom the filter let through; None: everyone it was given
    reused_weights: Floats | None = None  # by client: weight of its stored gradients in the step
    reused: bool = False  # the rows came from training that a filter or a selection rule had asked for
    extra: Costs = NO_COSTS  # of what clients remember
    parts: Parts | None = None  # which part of the model each client trained; None: all of it

    def drop(self, event: str) -> None:
        """Note that the server step these updates made was dropped: none of them counts."""
        self.events += (event,)
        if self.coefficients is not None:
            self.coefficients = np.zeros_like(self.coefficients)

    def reported(self) -> Progress:
        """Return how far those asked got; what the world reports is no more than was asked, in a time that can be."""
        clients, steps = self.worked
        known = self.progress
        if known is None:
            unknown = np.full(len(clients), np.nan)
            known = Progress(clients=clients, steps=steps, seconds=unknown, cut_off=np.zeros(len(clients), dtype=bool))
        known = known.of(self.asked)
        can_be = (known.seconds >= 0) & (known.seconds < np.inf)  # NaN is not
        seconds = known.seconds if can_be.all() else np.where(can_be, known.seconds, np.nan)
        steps = np.minimum(np.maximum(known.steps, 0), self.asked_steps)
        return Progress(clients=known.clients, steps=steps, seconds=seconds, cut_off=known.cut_off)

    def outcomes(self) -> Ids:
        """Return how the job of each of those asked ended."""
        ended = (self.done_steps < self.asked_steps).astype(np.int64)  # PARTIAL is 1, COMPLETE 0
        if not are_equal(self.asked, self.facts.clients):
            ended[~is_among(self.asked, self.facts.clients)] = Outcome.LOST
        if len(self.late):
            ended[is_among(self.asked, self.late)] = Outcome.LATE
        if len(self.at_work):
            ended[is_among(self.asked, self.at_work)] = Outcome.AT_WORK
        if self.rejected:
            ended[is_among(self.asked, list(self.rejected))] = Outcome.REJECTED
        return ended


def collect_updates(plan: Plan, view: View, choice: Choice, state: State, trained: Trained | None) -> Steps[Collected]:
    """Hand the cohort its order and collect updates, or use those that a filter or a selection rule already has."""
    order = order_for(
        plan,
        view,
        choice.clients,
        drawn={"multiplicity": choice.multiplicity, "inclusion_prob": choice.inclusion_prob},
        shared=shared_of(plan, state, view.model),
        wants_norms=plan.server.wants_norms,
        refresh=plan.asynchrony is None,
    )
    order = _boosted(plan, view, state, order)
    if plan.asynchrony is not None:
        return (yield from _first_updates(plan, view, order, state))
    if trained is None:
        yield Dispatch(order=order)
    collected = yield from updates_of_all(plan, order, state, trained)
    if collected.answer is not None:
        collected.extra = yield from settle_clients(plan, state, order, collected.facts, collected.answer)
    return collected


def updates_of_all(plan: Plan, order: Order, state: State, trained: Trained | None = None) -> Steps[Collected]:
    """Wait for everyone of an order that was dispatched. Bad updates are taken out, the others weighed without them."""
    known = order.weighing.asked
    none_done = np.zeros(len(order.steps), dtype=np.int64)
    collected = Collected(order.clients, known.multiplicity, order.steps, none_done, known, None)
    collected.parts = order.parts
    wanted, collected.reused, collected.num_handed_out = order.clients, trained is not None, len(order.clients)
    while True:
        if trained is None:
            into = _row_buffer(state, len(wanted)) if plan.traits.aggregation.is_rowwise else None
            asked = order.steps if wanted is order.clients else order.steps[np.searchsorted(order.clients, wanted)]
            returns, answer = yield Collect(order=order, clients=wanted, steps=asked, into=into)
            facts, coefficients, prob = returns.facts, returns.coefficients, returns.availability_prob
            collected.late, collected.round_seconds = returns.late, returns.seconds
            collected.progress = returns.progress
        else:
            answer = _part(trained, np.intersect1d(wanted, trained.clients))
            facts, coefficients, prob = None, None, answer.availability_prob
        if not len(answer.clients):
            collected.facts = known.keep(np.zeros(len(known), dtype=bool))
            break
        if not collected.rejected:
            collected.worked = (answer.clients, answer.steps)
        facts = facts or order.weighing.facts(answer.clients, answer.steps, prob)
        if not answer.finite.all():
            bad = answer.clients[~answer.finite]
            collected.rejected |= {int(client): answer.reasons[int(client)] for client in bad}
            wanted = np.setdiff1d(answer.clients, bad)
            if answer.delta is not None:  # rows are only picked; a sum is taken again
                trained = replace(answer, availability_prob=prob)
            continue
        collected.facts, collected.answer = facts, answer
        collected.coefficients = order.weighing.coefficients(facts) if coefficients is None else coefficients
        if are_equal(facts.clients, order.clients):
            collected.done_steps = facts.local_steps
        else:
            collected.done_steps[np.searchsorted(order.clients, facts.clients)] = facts.local_steps
        break
    return collected


def _first_updates(plan: Plan, view: View, order: Order, state: State) -> Steps[Collected]:
    """Close the collection when enough updates are back, whichever round handed them out."""
    rule = plan.asynchrony
    assert rule is not None
    sequence = order.clients[view.streams.generator("asynchrony", view.round).permutation(len(order.clients))]
    yield Dispatch(order=order, sequence=sequence, most_at_work=rule.concurrency)
    before = Jobs.of(state.jobs)
    wanted = merged(before, Jobs.handed_out(order, order.clients))
    returns, answer = yield Collect(
        order=order, clients=wanted.clients, steps=wanted.asked, first=rule.buffer_size, wants_rows=True
    )
    jobs = merged(before, Jobs.handed_out(order, returns.sent))
    returned = is_among(jobs.clients, returns.clients)
    lost = is_among(jobs.clients, returns.lost)
    state.jobs = jobs.keep(~returned & ~lost).columns()
    involved = jobs.keep(returned | (jobs.rounds == order.round))
    answer = replace(answer, availability_prob=returns.availability_prob)
    good = answer.finite if len(answer.clients) else np.zeros(0, dtype=bool)
    accepted = _part(answer, answer.clients[good])
    landed = jobs.keep(returned).keep(good)
    done = np.zeros_like(involved.asked)
    done[np.searchsorted(involved.clients, landed.clients)] = accepted.steps
    facts = landed.facts(plan.local, view, accepted.steps, accepted.availability_prob)
    return Collected(
        asked=involved.clients,
        multiplicity=involved.draws,
        asked_steps=involved.asked,
        done_steps=done,
        facts=facts,
        answer=accepted if len(facts) else None,
        coefficients=_stale_coefficients(plan, facts, order.round - landed.rounds),
        staleness=order.round - landed.rounds,
        progress=returns.progress,
        at_work=involved.clients[~is_among(involved.clients, np.union1d(returns.clients, returns.lost))],
        rejected={int(c): answer.reasons[int(c)] for c in answer.clients[~good]},
        num_handed_out=len(returns.sent),
        worked=(answer.clients, answer.steps),
        round_seconds=returns.seconds,
        events=() if len(involved) else ("nobody was at work",),
    )


def _stale_coefficients(plan: Plan, facts: Facts, staleness: Ids) -> Floats | None:
    """Return the aggregation's coefficients, each times what an update of its age counts; None for rows."""
    assert plan.asynchrony is not None
    if plan.traits.aggregation.is_rowwise or not len(facts):
        return None
    return np.asarray(cast(Any, plan.aggregation).coefficients(facts) * plan.asynchrony.weight(staleness))


def _row_buffer(state: State, count: int) -> Tensor:
    """Return memory for so many rows: that of the table they will be remembered in, where there is one."""
    table = state.aggregation.get("table")
    if not isinstance(table, RowTable):
        return state.row_buffer(count)
    state.rows = None  # from the first round, before there was a table
    return table.spare(count)


def reusing(steps: Steps[T], trained: Trained | None) -> Steps[T]:
    """Pass requests on; training that a filter has had done already is answered from its rows."""
    asked = NOBODY if trained is None or trained.asked is None else trained.asked

    def reply(request: Any) -> Reply:
        if isinstance(request, Train) and trained is not None and is_among(request.clients, asked).all():
            return _part(trained, np.intersect1d(request.clients, trained.clients))
        return (yield request)

    return (yield from relay(steps, reply))


def _part(trained: Trained, clients: Ids) -> Trained:
    """Return what these clients alone sent, of an answer with rows."""
    place = np.searchsorted(trained.clients, clients)
    if len(place) == len(trained.clients):
        return trained
    index = torch.from_numpy(place)
    delta, prob = cast(Tensor, trained.delta)[index], trained.availability_prob
    return Trained(
        clients=clients,
        steps=trained.steps[place],
        loss=trained.loss[place],
        finite=trained.finite[place],
        delta=delta,
        extra=None if trained.extra is None else trained.extra[index],
        square_norms=delta.double().square().sum(1).cpu().numpy(),
        buffers=trained.buffers,
        reasons=trained.reasons,
        availability_prob=None if prob is None else prob[place],
        asked=clients,
    )


def _boosted(plan: Plan, view: View, state: State, order: Order) -> Order:
    """Give clients that have just arrived the factor that a fast reboot asks for."""
    if "arrived" not in state.members or not state.members["arrived"].any():
        return order
    arrived = state.members["arrived"][order.clients]
    since = np.where(arrived > 0, view.round - arrived + 1, 0)
    asked = replace(order.weighing.asked, boost=plan.turnover.boost(since))
    return replace(order, weighing=replace(order.weighing, asked=asked))
