"""The round: a generator that yields requests and is sent answers. It trains nothing, sends nothing, opens nothing.

members who belongs, who is up           the world
pool    which of them may be asked       filtering
cohort  who is asked                     selection
updates what they send back              local, by the world
step    how the updates combine          aggregation
model   how the model moves              server
"""

from collections.abc import Generator
from dataclasses import replace
from typing import cast

import numpy as np
from torch import Tensor

from turnout.coordinator.advance import advance
from turnout.coordinator.asking import Asker, Meter
from turnout.coordinator.client_state import follow_weights
from turnout.coordinator.collecting import Collected, collect_updates, reusing
from turnout.coordinator.compatibility import check, check_buffers, check_models
from turnout.coordinator.drifting import at_round
from turnout.coordinator.members import admitted, begin_members, change_members
from turnout.coordinator.orders import server_order
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.records import as_last, empty_record, events_of, first_events, round_record
from turnout.coordinator.server_step import begin, commit, dropped, remember
from turnout.coordinator.several import equal_starts, measure_models, several_models
from turnout.coordinator.trust import with_trust
from turnout.costs import Costs
from turnout.local import SGD
from turnout.protocols import Choice, Kept, Memory, Population, View
from turnout.requests import Census, Evaluate, Evaluated, Present, Record, Steps, Train, Trained
from turnout.streams import SERVER, Streams
from turnout.submodels import Devices


def coordinate(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    """Run the plan from the given state; yields requests to the world, returns the last state."""
    check(plan, population)
    check_buffers(plan, state.buffers is not None)
    check_models(plan, state)
    state = replace(state)  # the caller's stays as it is
    return (yield from with_trust(plan, _rounds(plan, population, state, streams)))


def _rounds(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    if state.round == 0:
        present: Present = yield Census(round=0, model=state.model, buffers=state.buffers)
        begin_members(population, state, present.members)
        people = admitted(at_round(population, 0), state)
        measured = yield from _measure(plan, people, state, streams)
        events = first_events(plan) if plan.assignment is None else equal_starts(plan, state)
        yield empty_record(0, people, measured, events=events, state=replace(state))
    while state.round < plan.rounds:
        present = yield Census(round=state.round + 1, model=state.model, buffers=state.buffers)
        people = at_round(population, state.round + 1)
        view = _view(plan, people, state, streams, present)
        if plan.assist is not None and plan.assist.takes(view):
            record = yield from _server_round(plan, people, view, state, present)
        else:
            record = yield from _client_round(plan, people, view, state, present)
        yield as_last(record, state)
    return state


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
    events: tuple[str, ...] = ()
    if present.members is not None:
        events = yield from meter.watch(change_members(plan, view, state, present.members), sizes)
    view = _with_members(view, population, state)
    yield from follow_weights(plan, view, state)
    ask = Asker(plan, _with(view, state.local), state)
    pool = np.setdiff1d(up, state.jobs["clients"]) if state.jobs else up  # who is at work is not asked again
    keeping = plan.filtering.keep(pool, _with(view, state.filtering), ask)
    kept: Kept = (yield from meter.watch(keeping, sizes)) if isinstance(keeping, Generator) else keeping
    events += remember(state, "filtering", kept.memory)
    choosing = plan.selection.choose(kept.clients, _with(view, state.selection), ask)
    if isinstance(choosing, Generator):
        choosing = yield from meter.watch(reusing(choosing, kept.trained), sizes)
    choice: Choice = choosing
    events += remember(state, "selection", choice.memory)
    trained = choice.trained if choice.trained is not None else kept.trained
    step = _one_model if plan.assignment is None else several_models
    collected = yield from step(ask, choice, trained, meter, len(up) > 0)
    collected.kept = None if len(kept.clients) == len(pool) else kept.clients
    collected.metrics = kept.metrics | collected.metrics
    state.round = view.round
    measured = yield from _measure(plan, view.population, state, view.streams)
    collected.events = (*events, *events_of(plan, up, choice, collected))
    if meter.has_counted:
        collected.extra += meter.costs(plan.sent_bytes(state.model))
    return round_record(plan, view, up, choice, collected, measured, replace(state))


def _one_model(ask: Asker, choice: Choice, trained: Trained | None, meter: Meter, anyone_up: bool) -> Steps[Collected]:
    """Have the cohort train the model, and move it; a step that is not finite is dropped."""
    plan, view, state = ask.plan, ask.view, ask.state
    before = begin(state)
    collected = yield from collect_updates(plan, view, choice, state, trained)
    plain = replace(view, memory={}) if view.memory else view
    metrics = yield from meter.watch(advance(plan, plain, state, collected, ask, anyone_up), view.population.sizes)
    wrong = commit(state, before)
    if wrong is not None:
        collected.drop(dropped(wrong, collected.answer))
    collected.metrics |= metrics if wrong is None else {}
    collected.step_kept = wrong is None
    return collected


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
    measured = yield from _measure(plan, view.population, state, view.streams)
    seen = int(order.steps[0]) * (solver.batch_size or view.population.server_size)
    return empty_record(
        view.round,
        view.population,
        measured,
        up=present.up,
        events=(*events, what),
        costs=Costs(gradient_evaluations=seen) + meter.costs(plan.sent_bytes(state.model)),
        finished=view.round == view.rounds,
        state=replace(state),
    )


def _measure(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[Evaluated | None]:
    if not plan.evaluate.is_due(state.round, plan.rounds):
        return None
    if plan.assignment is not None:
        return (yield from measure_models(plan, population, state, streams))
    measured: Evaluated = yield Evaluate(
        round=state.round,
        model=state.model if state.measured is None else state.measured,
        buffers=state.buffers,
        per_client=plan.evaluate.clients_due(state.round, plan.rounds),
        clients=None if population.counted is None else np.flatnonzero(population.counted),
        metrics=plan.evaluate.may_measure,
    )
    return measured
