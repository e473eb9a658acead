"""A round with several models: who trains which, and a server step for each model over its own clients' updates.

The cohort is handed one order, so that there is one timing and one outcome for each job. Its parts, one for each model
in use, are collected one after another, weighed among themselves, and move their own model. What the aggregation and
the server rule remember is kept for each model. A model that no client trains stays as it is, and so does what the
rules remember of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.assignment.assigned import Assigned
from turnout.client_models import ClientModels
from turnout.coordinator.advance import advance
from turnout.coordinator.asking import Asker, Meter
from turnout.coordinator.collecting import Collected, updates_of_all
from turnout.coordinator.drifting import with_blocks
from turnout.coordinator.generators import settle
from turnout.coordinator.orders import order_for
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.server_step import begin, commit, dropped, remember
from turnout.errors import ConfigError
from turnout.orders import Order
from turnout.protocols import Choice, Memory, Population, View
from turnout.requests import Dispatch, Evaluate, Evaluated, Steps, Trained
from turnout.streams import Streams

MOST_NAMED = 5  # pairs of equal models that are named


@dataclass(frozen=True, slots=True)
class Part:
    """One model, the order of the clients that train it, and what they sent."""

    model: int
    order: Order
    collected: Collected
    metrics: dict[str, float]


def several_models(
    ask: Asker, choice: Choice, trained: Trained | None, meter: Meter, anyone_up: bool
) -> Steps[Collected]:
    """Assign a model to each client of the cohort, have them train, and move each model."""
    assert trained is None  # rules that train clients before they are assigned are refused
    plan, view, state = ask.plan, ask.view, ask.state
    assigned = yield from meter.watch(_assigned(plan, choice.clients, view, state, ask), view.population.sizes)
    events = (*assigned.events, *remember(state, "assignment", assigned.memory))
    _take_over(state, assigned)
    models = _models(state)
    people = with_blocks(view.population, choice.clients, assigned.blocks)
    view = replace(view, population=people)
    drawn = {"multiplicity": choice.multiplicity, "inclusion_prob": choice.inclusion_prob}
    norms, blocks = plan.server.wants_norms, assigned.blocks
    whole = order_for(plan, view, choice.clients, drawn=drawn, wants_norms=norms, blocks=blocks)
    used = np.unique(assigned.model_of)
    orders = {int(m): whole.part(models[int(m)], assigned.model_of == m) for m in used} or {0: whole}
    yield Dispatch(order=replace(whole, by_model=tuple(orders.values())))
    parts = []
    for model, order in orders.items():
        part = yield from _stepped(Asker(plan, view, state), model, order, meter, anyone_up)
        parts.append(part)
    collected = _merged(whole, parts, num_models=len(models))
    collected.events = (*events, *collected.events)
    collected.metrics = {**assigned.metrics, **collected.metrics}
    collected.num_handed_out = 0 if assigned.are_sent else len(whole.clients)
    collected.sizes = people.sizes
    collected.assignment = np.full(view.population.num_clients, -1, dtype=np.int64)
    collected.assignment[choice.clients] = assigned.model_of
    return collected


def _take_over(state: State, assigned: Assigned) -> None:
    """Take over the models that the rule changed; the server's rules forget what they remember of them."""
    if assigned.models is None:
        return
    state.models, state.model = assigned.models, assigned.models[0]
    for model in assigned.fresh:
        state.server, state.aggregation = (_with_model(each, model, {}) for each in (state.server, state.aggregation))
        if state.measured_models is not None:
            state.measured_models = state.measured_models.clone()
            state.measured_models[model] = assigned.models[model]


def _assigned(plan: Plan, clients: Ids, view: View, state: State, ask: Asker) -> Steps[Assigned]:
    """Return the model of each client, by the plan's rule."""
    rule, models = plan.assignment, _models(state)
    assert rule is not None
    assigned: Assigned = yield from settle(rule.assign(clients, models, replace(view, memory=state.assignment), ask))
    chosen = np.asarray(assigned.model_of)
    if chosen.shape != clients.shape or chosen.dtype.kind != "i" or ((chosen < 0) | (chosen >= len(models))).any():
        raise ConfigError(
            f"{type(rule).__name__} on assignment must return one model index from 0 to {len(models) - 1} for each "
            f"client; got {assigned.model_of!r:.80} for {len(clients)} clients. Change the rule.",
            setting="assignment",
        )
    return assigned


def _stepped(ask: Asker, model: int, order: Order, meter: Meter, anyone_up: bool) -> Steps[Part]:
    """Collect the updates of one model's clients, and move the model; a step that is not finite is dropped."""
    plan, view, state = ask.plan, replace(ask.view, model=order.model, memory={}), ask.state
    own = replace(
        state,
        model=order.model,
        models=None,
        measured=None if state.measured_models is None else state.measured_models[model],
        server=_of_model(state.server, model),
        aggregation=_of_model(state.aggregation, model),
    )
    before = begin(own)
    collected = yield from updates_of_all(plan, order, state)
    asking = Asker(plan, view, own, order)
    metrics = yield from meter.watch(advance(plan, view, own, collected, asking, anyone_up), view.population.sizes)
    wrong = commit(own, before)
    state.last_losses = own.last_losses
    if wrong is not None:
        collected.drop(f"model {model}: {dropped(wrong, collected.answer)}")
        collected.step_kept, metrics = False, {}
    else:
        _put_back(state, model, own, moved=own.model is not order.model)
    return Part(model, order, collected, metrics)


def _put_back(state: State, model: int, own: State, *, moved: bool) -> None:
    """Take over one model and what the rules remember of it."""
    models = _models(state)
    if moved:
        models = models.clone()  # the old ones belong to the last record
        models[model] = own.model
    if own.measured is not None or state.measured_models is not None:
        measured = models.clone() if state.measured_models is None else state.measured_models.clone()
        measured[model] = own.model if own.measured is None else own.measured
        state.measured_models = measured
    state.models, state.model = models, models[0]
    state.server = _with_model(state.server, model, own.server)
    state.aggregation = _with_model(state.aggregation, model, own.aggregation)


def _models(state: State) -> Tensor:
    assert state.models is not None  # checked before the first round
    return state.models


def _of_model(memory: Memory, model: int) -> Memory:
    """Return what a rule remembers of one model."""
    prefix = f"model {model} "
    return {name.removeprefix(prefix): value for name, value in memory.items() if name.startswith(prefix)}


def _with_model(memory: Memory, model: int, own: Memory) -> Memory:
    """Return what a rule remembers, with that of one model replaced."""
    prefix = f"model {model} "
    others = {name: value for name, value in memory.items() if not name.startswith(prefix)}
    return others | {f"{prefix}{name}": value for name, value in own.items()}


def _merged(whole: Order, parts: Sequence[Part], num_models: int) -> Collected:
    """Return what the parts collected as one, in the order of client ids."""
    all_collected = [part.collected for part in parts]
    if num_models == 1:
        all_collected[0].metrics = parts[0].metrics
        return all_collected[0]
    accepted = np.concatenate([each.facts.clients for each in all_collected])
    order = np.argsort(accepted)
    steps = np.concatenate([each.facts.local_steps for each in all_collected])[order]
    done = np.zeros_like(whole.steps)
    for part in parts:
        done[np.searchsorted(whole.clients, part.order.clients)] = part.collected.done_steps
    return Collected(
        asked=whole.clients,
        multiplicity=whole.weighing.asked.multiplicity,
        asked_steps=whole.steps,
        done_steps=done,
        facts=whole.weighing.facts(accepted[order], steps),
        answer=_answer(all_collected, order),
        coefficients=_joined([each.coefficients for each in all_collected if each.coefficients is not None], order),
        progress=all_collected[0].progress,
        late=np.unique(np.concatenate([each.late for each in all_collected])),
        rejected={client: why for each in all_collected for client, why in each.rejected.items()},
        metrics={f"model_{part.model}_{name}": value for part in parts for name, value in part.metrics.items()},
        worked=_worked(all_collected),
        round_seconds=all_collected[0].round_seconds,
        events=tuple(event for each in all_collected for event in each.events),
        step_kept=any(each.step_kept for each in all_collected),
    )


def _answer(all_collected: Sequence[Collected], order: Ids) -> Trained | None:
    """Return the losses of the accepted clients of all parts; None if no update was accepted."""
    answers = [each.answer for each in all_collected if each.answer is not None]
    if not answers:
        return None
    clients = np.concatenate([each.clients for each in answers])[order]
    steps = np.concatenate([each.steps for each in answers])[order]
    losses = np.concatenate([each.loss for each in answers])[order]
    return Trained(clients=clients, steps=steps, loss=losses, finite=np.ones(len(clients), dtype=bool))


def _joined(values: Sequence[Floats], order: Ids) -> Floats | None:
    return np.concatenate(values)[order] if values else None


def _worked(all_collected: Sequence[Collected]) -> tuple[Ids, Ids]:
    """Return the clients whose work came back, ascending, and their steps."""
    clients, steps = (np.concatenate([each.worked[at] for each in all_collected]) for at in (0, 1))
    order = np.argsort(clients)
    return clients[order], steps[order]


def equal_starts(plan: Plan, state: State) -> tuple[str, ...]:
    """Return a note where models that should be drawn independently start alike, as those of a given module do."""
    if plan.traits.assignment.initial != "independent":
        return ()
    models = _models(state)
    twins = [(n, m) for m in range(1, len(models)) for n in range(m) if torch.equal(models[n], models[m])]
    return tuple(
        f"models {n} and {m} start with the same weights, so no client can tell them apart, and ties go to model {n}; "
        "draw the weights of each, as the model rules do (softmax with zero_init = false)"
        for n, m in twins[:MOST_NAMED]
    )


def measure_models(plan: Plan, people: Population, state: State, streams: Streams) -> Steps[Evaluated]:
    """Measure the models, each client with the model that it would use now.

    `loss` and `accuracy` are on the test set: the mean over models, weighted by the data of the clients that use each.
    `own_loss` and `own_accuracy` are on all clients' hold-outs together, each with its client's model. Without a test
    set, and where data drift, `loss` and `accuracy` are the same as these.
    """
    view = View(
        round=state.round,
        rounds=plan.rounds,
        streams=streams,
        population=people,
        model=state.model,
        last_losses=state.last_losses,
        table_budget=plan.memory.table_bytes,
    )
    assigned = yield from _assigned(plan, people.everyone, view, state, Asker(plan, view, state))
    model_of, models = assigned.model_of, _models(state) if state.measured_models is None else state.measured_models
    has_holdout = people.holdout_sizes is not None and bool(people.holdout_sizes.any())
    measured: dict[int, Evaluated] = {}
    for model in np.unique(model_of).tolist():
        measured[model] = yield Evaluate(
            round=state.round,
            model=models[model],
            buffers=None,
            per_client=has_holdout,
            metrics=plan.evaluate.may_measure,
        )
    metrics = {} if people.drift is not None else _on_test_set(measured, model_of, people.weights)
    by_client = {
        "loss": _by_client({model: each.client_loss for model, each in measured.items()}, model_of),
        "accuracy": _by_client({model: each.client_accuracy for model, each in measured.items()}, model_of),
    }
    for name, values in by_client.items():
        if values is not None and has_holdout:
            metrics[f"own_{name}"] = float(np.nansum(values * people.holdout_sizes) / people.holdout_sizes.sum())
            metrics.setdefault(name, metrics[f"own_{name}"])
    if not plan.evaluate.clients_due(state.round, plan.rounds):
        return Evaluated(metrics=metrics)
    used = ClientModels(num_clients=len(model_of), number=model_of) if state.round == plan.rounds else None
    losses, accuracy = by_client["loss"], by_client["accuracy"]
    return Evaluated(metrics=metrics, client_loss=losses, client_accuracy=accuracy, client_models=used)


def _on_test_set(measured: dict[int, Evaluated], model_of: Ids, weights: Floats) -> dict[str, float]:
    """Return the mean of each metric over the models in use, weighted by the data of the clients that use them."""
    first = next(iter(measured.values()))
    if len(measured) == 1:
        return dict(first.metrics)
    shares = {model: float(weights[model_of == model].sum()) for model in measured}
    total = sum(shares.values())
    return {
        name: sum(share * measured[model].metrics[name] for model, share in shares.items()) / total
        for name in first.metrics
        if all(name in each.metrics for each in measured.values())
    }


def _by_client(values: dict[int, Floats | None], model_of: Ids) -> Floats | None:
    """Return what each client's own model gives on the client's hold-out; `values` are by model, then by client."""
    chosen: Floats = np.full(len(model_of), np.nan)
    for model, each in values.items():
        if each is None:
            return None
        chosen[model_of == model] = each[model_of == model]
    return chosen
