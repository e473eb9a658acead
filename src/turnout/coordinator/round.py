"""The round: a generator that yields requests and is sent answers. It trains nothing, sends nothing, opens nothing.

members who belongs                      fleet
up      who is up                        fleet
pool    which of them may be asked       filtering
cohort  who is asked                     selection
rows    what they changed                local, by an engine
step    how the answers combine          aggregation
model   how the model moves              server
"""

from dataclasses import replace
from typing import cast

import numpy as np
from torch import Tensor

from turnout.coordinator.adversaries import with_adversaries
from turnout.coordinator.asking import Asker, Meter, server_train
from turnout.coordinator.buffered import buffered_round
from turnout.coordinator.checks import check
from turnout.coordinator.generators import is_rowwise, settle
from turnout.coordinator.members import admitted, change_members
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.records import as_last, empty_record, round_record
from turnout.coordinator.server_step import FIRST_ROUNDS, begin, commit, dropped, first_norms, move, norms_of, remember
from turnout.coordinator.training import Outcome, reusing, train_cohort
from turnout.coordinator.trust import with_trust
from turnout.local import SGD
from turnout.metrics import reported
from turnout.optional import is_observer, may_step_without_answers
from turnout.protocols import Choice, Combined, Kept, Memory, Population, View
from turnout.requests import Costs, Evaluate, Evaluated, Steps, Trained
from turnout.rows import Rows
from turnout.streams import SERVER, Streams


def coordinate(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    """Run the plan from the given state; yields requests, returns the last state."""
    check(plan, population)
    rounds = with_trust(plan, _rounds(plan, population, state, streams))
    return (yield from with_adversaries(plan, population, streams, rounds))


def _rounds(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    if state.round == 0:
        measured = yield from _measure(plan, admitted(plan, population, state), state)
        yield empty_record(0, population, measured)
    while state.round < plan.rounds:
        view = _view(plan, population, state, streams)
        if plan.asynchrony is not None:
            yield from _buffered_round(plan, view, state)
        elif plan.assist is not None and plan.assist.takes(view):
            yield from _server_round(plan, population, view, state)
        else:
            yield from _client_round(plan, population, view, state)
    return state


def _view(plan: Plan, population: Population, state: State, streams: Streams) -> View:
    return View(
        round=state.round + 1,
        rounds=plan.rounds,
        streams=streams,
        population=admitted(plan, population, state),
        model=state.model,
        buffers=state.buffers,
        last_losses=state.last_losses,
        restart=state.restart,
        sim_seconds=state.sim_seconds,
        table_budget=plan.table_budget,
    )


def _with(view: View, memory: Memory) -> View:
    """Return the view with a rule's own memory in it."""
    return replace(view, memory=memory) if memory else view


def _with_members(view: View, plan: Plan, population: Population, state: State) -> View:
    """Return the view after clients came and went."""
    if plan.fleet.membership is None:
        return view
    return replace(view, population=admitted(plan, population, state), restart=state.restart)


def _client_round(plan: Plan, population: Population, view: View, state: State) -> Steps[None]:
    sizes, meter = population.sizes, Meter()
    events = yield from meter.watch(change_members(plan, population, view, state), sizes)
    view = _with_members(view, plan, population, state)
    ask = Asker(plan, _with(view, state.local), state)
    up = plan.fleet.availability.up(view)
    kept: Kept = yield from meter.watch(settle(plan.filtering.keep(up, _with(view, state.filtering), ask)), sizes)
    events += remember(state, "filtering", kept.memory)
    choosing = settle(plan.selection.choose(kept.clients, _with(view, state.selection), ask))
    choice: Choice = yield from meter.watch(reusing(choosing, kept.trained), sizes)
    events += remember(state, "selection", choice.memory)
    held = choice.trained if choice.trained is not None else kept.trained
    before = begin(state)
    outcome = yield from train_cohort(plan, _with(view, state.local), choice, state, held)
    metrics = yield from meter.watch(_advance(plan, view, state, outcome, ask), sizes)
    wrong = commit(state, before)
    if wrong is not None:
        outcome.drop(dropped(wrong, outcome.answer))
    outcome.metrics |= kept.metrics | (metrics if wrong is None else {})
    state.round, state.sim_seconds = view.round, state.sim_seconds + outcome.round_seconds + meter.seconds
    measured = yield from _measure(plan, view.population, state)
    record = round_record(plan, view, up, choice, outcome, measured, meter.costs(state.model))
    yield as_last(replace(record, events=(*events, *record.events)) if events else record, state)


def _buffered_round(plan: Plan, view: View, state: State) -> Steps[None]:
    """One server step of a server that does not wait."""
    record = yield from buffered_round(plan, view, state)
    measured = yield from _measure(plan, view.population, state)
    record = replace(record, metrics=reported(record.metrics))
    if measured is not None:
        metrics = {**record.metrics, **measured.metrics}
        record = replace(record, metrics=metrics, client_accuracy=measured.client_accuracy)
    yield as_last(record, state)


def _server_round(plan: Plan, population: Population, view: View, state: State) -> Steps[None]:
    """One round in which the server steps on its own samples; clients come and go, and nobody is asked."""
    assert plan.assist is not None
    meter = Meter()
    events = yield from meter.watch(change_members(plan, population, view, state), population.sizes)
    view = _with_members(view, plan, population, state)
    solver = SGD(lr=plan.assist.lr, batch_size=plan.assist.batch_size, steps=plan.assist.steps)
    alone = replace(view, population=Population.of(np.array([view.population.server_size])))
    steps = solver.asked(np.zeros(1, dtype=np.int64), alone)
    answer: Trained = yield server_train(solver, view, np.array([SERVER]), steps)
    what, before = "server round", begin(state)
    if answer.finite.all():
        state.model, state.measured = state.model - cast(Tensor, answer.delta)[0], None
        state.buffers = answer.buffers if answer.buffers is not None else state.buffers
    wrong = commit(state, before) if answer.finite.all() else answer.reasons[SERVER]
    if wrong is not None:
        what = f"server round: its step was dropped ({wrong})"
    state.round, state.sim_seconds = view.round, state.sim_seconds + meter.seconds
    measured = yield from _measure(plan, view.population, state)
    seen = int(steps[0]) * (solver.batch_size or view.population.server_size)
    record = empty_record(
        view.round,
        view.population,
        measured,
        up=plan.fleet.availability.up(view),
        events=(*events, what),
        costs=Costs(gradient_evaluations=seen) + meter.costs(state.model),
        finished=view.round == view.rounds,
    )
    yield as_last(record, state)


def _advance(plan: Plan, view: View, state: State, outcome: Outcome, ask: Asker) -> Steps[dict[str, float]]:
    """Combine the answers and move the model; without answers it stays as it is, unless the aggregation steps alone.

    Returns the rules' metrics.
    """
    answer = outcome.answer if outcome.answer is not None else _of_nobody(plan, view)
    if answer is None:
        return {}
    state.last_losses[answer.clients] = answer.loss
    if is_observer(plan.local) and len(outcome.facts):
        share = outcome.facts.weights * outcome.facts.multiplicity
        loss = float((share * answer.loss).sum() / share.sum())
        state.local = {**state.local, **plan.local.observe(state.local, view, loss)}
    combined: Combined = yield from _combine(plan, view, state, outcome, answer, ask)
    outcome.coefficients = combined.coefficients
    moved = move(plan, state, combined, outcome.facts, answer.square_norms)
    if moved is None:
        return combined.metrics
    state.buffers = answer.buffers if answer.buffers is not None else state.buffers
    metrics = combined.metrics | moved.metrics
    if "table" in state.local:  # controls are remembered beside what the aggregation keeps
        metrics["memory_bytes"] = metrics.get("memory_bytes", 0.0) + _bytes_of_controls(state.local)
    if view.round <= FIRST_ROUNDS:
        norms = norms_of(answer.delta, answer.square_norms)
        metrics |= first_norms(combined.direction, outcome.facts.multiplicity, norms)
    return metrics


def _bytes_of_controls(memory: Memory) -> float:
    """Return the bytes of every c_i, and of c."""
    control: Tensor = memory["control"]
    return float(memory["table"].bytes + control.numel() * control.element_size())


def _of_nobody(plan: Plan, view: View) -> Trained | None:
    """Return an answer with no rows, for an aggregation that steps although no client answered."""
    rule = plan.aggregation
    if not may_step_without_answers(rule):
        return None
    if not rule.steps_without_answers(anyone_up=len(plan.fleet.availability.up(view)) > 0):
        return None
    rows, none = view.model.new_zeros(0, view.model.numel()), np.zeros(0, dtype=np.int64)
    return Trained(clients=none, steps=none, loss=np.zeros(0), finite=np.zeros(0, dtype=bool), delta=rows)


def _combine(plan: Plan, view: View, state: State, outcome: Outcome, answer: Trained, ask: Asker) -> Steps[Combined]:
    if is_rowwise(plan.aggregation):
        rows = Rows(outcome.facts, cast(Tensor, answer.delta), answer.extra, answer.loss)
        combined: Combined = yield from settle(plan.aggregation.combine(rows, state.aggregation, view, ask))
        return combined
    assert outcome.coefficients is not None
    direction = answer.reduced
    if direction is None:  # rows were asked for, or the engine leaves the sum to us
        delta = cast(Tensor, answer.delta)
        direction = delta.new_tensor(outcome.coefficients) @ delta
    return Combined(direction=direction, coefficients=outcome.coefficients, memory=state.aggregation)


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
