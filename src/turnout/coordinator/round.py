"""The round: a generator that yields requests and is sent answers. It trains nothing, sends nothing, opens nothing.

members who belongs, who is up           the world
pool    which of them may be asked       filtering
cohort  who is asked                     selection
updates what they send back              local, by the world
step    how the updates combine          aggregation
model   how the model moves              server
"""

from dataclasses import replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from turnout.array_types import Floats
from turnout.coordinator.asking import Asker, Meter
from turnout.coordinator.client_state import follow_weights
from turnout.coordinator.collecting import Collected, collect_updates, reusing
from turnout.coordinator.compatibility import check, check_buffers
from turnout.coordinator.generators import settle
from turnout.coordinator.members import admitted, begin_members, change_members
from turnout.coordinator.orders import server_order
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.records import as_last, empty_record, events_of, round_record
from turnout.coordinator.server_step import FIRST_ROUNDS, begin, commit, dropped, first_norms, move, norms_of, remember
from turnout.coordinator.trust import with_trust
from turnout.costs import Costs
from turnout.local import SGD
from turnout.protocols import Choice, Combined, Kept, Memory, Population, View
from turnout.requests import Census, Evaluate, Evaluated, Present, Record, Steps, Train, Trained
from turnout.rows import Rows
from turnout.streams import SERVER, Streams
from turnout.submodels import Devices


def coordinate(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    """Run the plan from the given state; yields requests to the world, returns the last state."""
    check(plan, population)
    check_buffers(plan, state.buffers is not None)
    state = replace(state)  # the caller's stays as it is
    return (yield from with_trust(plan, _rounds(plan, population, state, streams)))


def _rounds(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    if state.round == 0:
        present: Present = yield Census(round=0, model=state.model, buffers=state.buffers)
        begin_members(population, state, present.members)
        people = admitted(population, state)
        measured = yield from _measure(plan, people, state)
        yield _with_state(empty_record(0, people, measured), state)
    while state.round < plan.rounds:
        present = yield Census(round=state.round + 1, model=state.model, buffers=state.buffers)
        view = _view(plan, population, state, streams, present)
        if plan.assist is not None and plan.assist.takes(view):
            record = yield from _server_round(plan, population, view, state, present)
        else:
            record = yield from _client_round(plan, population, view, state, present)
        yield _with_state(as_last(record, state), state)
    return state


def _with_state(record: Record, state: State) -> Record:
    """Return the record with what the run carries on from here, which a checkpoint may save."""
    return replace(record, state=replace(state))


def _view(plan: Plan, population: Population, state: State, streams: Streams, present: Present) -> View:
    return View(
        round=state.round + 1,
        rounds=plan.rounds,
        streams=streams,
        population=admitted(population, state),
        model=state.model,
        buffers=state.buffers,
        last_losses=state.last_losses,
        restart=state.restart,
        sim_seconds=present.sim_seconds,
        table_budget=plan.memory.table_bytes,
        devices=None if present.seconds_per_step is None else Devices(seconds_per_step=present.seconds_per_step),
    )


def _with(view: View, memory: Memory) -> View:
    """Return the view with a rule's own memory in it."""
    return replace(view, memory=memory) if memory else view


def _with_members(view: View, population: Population, state: State) -> View:
    """Return the view after clients joined and left."""
    if not state.members:
        return view
    return replace(view, population=admitted(population, state), restart=state.restart)


def _client_round(plan: Plan, population: Population, view: View, state: State, present: Present) -> Steps[Record]:
    sizes, meter, up = population.sizes, Meter(), present.up
    events = yield from meter.watch(change_members(plan, view, state, present.members), sizes)
    view = _with_members(view, population, state)
    yield from follow_weights(plan, view, state)
    ask = Asker(plan, _with(view, state.local), state)
    pool = np.setdiff1d(up, state.jobs["clients"]) if state.jobs else up  # who is at work is not asked again
    kept: Kept = yield from meter.watch(settle(plan.filtering.keep(pool, _with(view, state.filtering), ask)), sizes)
    events += remember(state, "filtering", kept.memory)
    choosing = settle(plan.selection.choose(kept.clients, _with(view, state.selection), ask))
    choice: Choice = yield from meter.watch(reusing(choosing, kept.trained), sizes)
    events += remember(state, "selection", choice.memory)
    trained = choice.trained if choice.trained is not None else kept.trained
    before = begin(state)
    collected = yield from collect_updates(plan, _with(view, state.local), choice, state, trained)
    metrics = yield from meter.watch(_advance(plan, view, state, collected, ask, len(up) > 0), sizes)
    wrong = commit(state, before)
    if wrong is not None:
        collected.drop(dropped(wrong, collected.answer))
    collected.kept = None if len(kept.clients) == len(pool) else kept.clients
    collected.metrics |= kept.metrics | (metrics if wrong is None else {})
    state.round = view.round
    measured = yield from _measure(plan, view.population, state)
    collected.events, collected.step_kept = (*events, *events_of(plan, up, choice, collected)), wrong is None
    return round_record(plan, view, up, choice, collected, measured, meter.costs(plan.sent_bytes(state.model)))


def _server_round(plan: Plan, population: Population, view: View, state: State, present: Present) -> Steps[Record]:
    """One round in which the server steps on its own samples; clients come and go, and nobody is asked."""
    assert plan.assist is not None
    meter = Meter()
    events = yield from meter.watch(change_members(plan, view, state, present.members), population.sizes)
    view = _with_members(view, population, state)
    solver = SGD(lr=plan.assist.lr, batch_size=plan.assist.batch_size, steps=plan.assist.steps)
    order = server_order(solver, view)
    answer: Trained = yield Train(order=order)
    what, before = "server round", begin(state)
    if answer.finite.all():
        state.model, state.measured = state.model - cast(Tensor, answer.delta)[0], None
        state.buffers = answer.buffers if answer.buffers is not None else state.buffers
    wrong = commit(state, before) if answer.finite.all() else answer.reasons[SERVER]
    if wrong is not None:
        what = f"server round: its step was dropped ({wrong})"
    state.round = view.round
    measured = yield from _measure(plan, view.population, state)
    seen = int(order.steps[0]) * (solver.batch_size or view.population.server_size)
    return empty_record(
        view.round,
        view.population,
        measured,
        up=present.up,
        events=(*events, what),
        costs=Costs(gradient_evaluations=seen) + meter.costs(plan.sent_bytes(state.model)),
        finished=view.round == view.rounds,
    )


def _advance(
    plan: Plan, view: View, state: State, collected: Collected, ask: Asker, anyone_up: bool
) -> Steps[dict[str, float]]:
    """Combine the updates and move the model; without updates it stays as it is, unless the aggregation steps alone.

    Returns the rules' metrics.
    """
    answer = collected.answer if collected.answer is not None else _of_nobody(plan, view, anyone_up)
    if answer is None:
        return {}
    state.last_losses = _updated(state.last_losses, answer)
    observe = plan.traits.local.observe
    if observe is not None and len(collected.facts):
        share = collected.facts.weights * collected.facts.multiplicity
        loss = float((share * answer.loss).sum() / share.sum())
        state.local = {**state.local, **observe(state.local, view, loss)}
    combined: Combined = yield from _combine(plan, view, state, collected, answer, ask)
    collected.coefficients, collected.reused_weights = combined.coefficients, combined.reused
    age = {} if collected.staleness is None else {"staleness": float(collected.staleness.mean())}
    moved = move(plan, state, combined, collected.facts, _square_norms(plan, collected, answer))
    if moved is None:
        return age | combined.metrics
    state.buffers = answer.buffers if answer.buffers is not None else state.buffers
    metrics = age | combined.metrics | moved.metrics
    if plan.local.client_state is not None:  # clients' rows are remembered beside what the aggregation keeps
        rows = (view.population.num_clients + 1) * state.model.numel() * state.model.element_size()
        metrics["memory_bytes"] = metrics.get("memory_bytes", 0.0) + float(rows)
    if view.round <= FIRST_ROUNDS:
        norms = norms_of(answer.delta, answer.square_norms)
        metrics |= first_norms(combined.direction, collected.facts.multiplicity, norms)
    return metrics


def _updated(last_losses: Floats, answer: Trained) -> Floats:
    """Return the last loss heard from each client, after this answer."""
    losses = last_losses.copy()
    losses[answer.clients] = answer.loss
    return losses


def _square_norms(plan: Plan, collected: Collected, answer: Trained) -> Any:
    """Return ‖Δ_i‖² of the updates, where the server rule wants them."""
    if not plan.server.wants_norms or answer.square_norms is not None:
        return answer.square_norms
    return None if answer.delta is None else answer.delta.double().square().sum(1).cpu().numpy()


def _of_nobody(plan: Plan, view: View, anyone_up: bool) -> Trained | None:
    """Return an answer with no rows, for an aggregation that steps although no update came."""
    steps_without_answers = plan.traits.aggregation.steps_without_answers
    if steps_without_answers is None or not steps_without_answers(anyone_up):
        return None
    rows, none = view.model.new_zeros(0, view.model.numel()), np.zeros(0, dtype=np.int64)
    return Trained(clients=none, steps=none, loss=np.zeros(0), finite=np.zeros(0, dtype=bool), delta=rows)


def _combine(
    plan: Plan, view: View, state: State, collected: Collected, answer: Trained, ask: Asker
) -> Steps[Combined]:
    combine = plan.traits.aggregation.combine
    if combine is not None:
        delta = cast(Tensor, answer.delta)
        if plan.asynchrony is not None and collected.staleness is not None:
            delta = delta * delta.new_tensor(plan.asynchrony.weight(collected.staleness))[:, None]
        rows = Rows(collected.facts, delta, answer.extra, answer.loss)
        combined: Combined = yield from settle(combine(rows, state.aggregation, view, ask))
        return combined
    assert collected.coefficients is not None
    direction = answer.reduced
    if direction is None:  # rows were asked for, or the world leaves the sum to us
        delta = cast(Tensor, answer.delta)
        direction = delta.new_tensor(collected.coefficients) @ delta
    if collected.parts is not None:  # a parameter is averaged over the clients that trained it
        direction = direction * collected.parts.balance(collected.facts.clients, collected.coefficients).to(direction)
    return Combined(direction=direction, coefficients=collected.coefficients, memory=state.aggregation)


def _measure(plan: Plan, population: Population, state: State) -> Steps[Evaluated | None]:
    if not plan.evaluate.is_due(state.round, plan.rounds):
        return None
    measured: Evaluated = yield Evaluate(
        round=state.round,
        model=state.model if state.measured is None else state.measured,
        buffers=state.buffers,
        per_client=plan.evaluate.clients_due(state.round, plan.rounds),
        clients=None if population.counted is None else np.flatnonzero(population.counted),
        metrics=plan.evaluate.may_measure,
    )
    return measured
