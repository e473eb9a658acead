"""The round: a generator that yields requests and is sent answers. It trains nothing, sends nothing, opens nothing.

up      who is up                        fleet
pool    which of them may be asked       filtering
cohort  who is asked                     selection
rows    what they changed                local, by an engine
step    how the answers combine          aggregation
model   how the model moves              server
"""

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
from torch import Tensor

from turnout.coordinator.plan import Plan, State
from turnout.local.batches import samples_used
from turnout.protocols import Choice, Memory, Population, Rowwise, View
from turnout.requests import Costs, Evaluate, Evaluated, Probe, Probed, Record, Request, Steps, Train, Trained
from turnout.rows import Facts, Rows, Step
from turnout.streams import Floats, Ids, Streams

T = TypeVar("T")
NO_CLIENTS = np.zeros(0, dtype=np.int64)
NO_VALUES = np.zeros(0)


def coordinate(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    """Run the plan from the given state; yields requests, returns the last state."""
    plan.check(population)
    if state.round == 0:
        measured = yield from _measure(plan, state, state.model)
        yield _empty_record(population, measured)
    while state.round < plan.rounds:
        yield from _one_round(plan, population, state, streams)
    return state


def _one_round(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[None]:
    view = View(
        round=state.round + 1,
        rounds=plan.rounds,
        streams=streams,
        population=population,
        model=state.model,
        buffers=state.buffers,
        last_losses=state.last_losses,
    )
    probes = Meter()
    up = plan.fleet.availability.up(view)
    pool = yield from probes.watch(settle(plan.filtering.keep(up, replace(view, memory=state.filtering))))
    choice: Choice = yield from probes.watch(settle(plan.selection.choose(pool, replace(view, memory=state.selection))))
    state.selection = {**state.selection, **choice.memory}
    outcome = yield from _train(plan, view, choice, state)
    to_measure = _advance(plan, view, state, outcome)
    state.round += 1
    measured = yield from _measure(plan, state, to_measure)
    yield _record(plan, view, up, choice, outcome, measured, probes.costs(state.model))


@dataclass(slots=True)
class Outcome:
    """What the cohort sent back, after bad answers were taken out."""

    asked_steps: Ids
    done_steps: Ids  # of those asked; 0 where nothing came
    facts: Facts  # of the accepted
    answer: Trained | None  # None: nobody answered
    coefficients: Floats | None
    rejected: dict[int, str]
    metrics: dict[str, float]


def _train(plan: Plan, view: View, choice: Choice, state: State) -> Steps[Outcome]:
    """Ask the cohort to train; an answer that is not finite is taken out and the rest counted again."""
    local, population = plan.local, view.population
    asked = local.asked(choice.clients, view)
    done = np.minimum(plan.fleet.work.done(asked, choice.clients, view), asked)
    settings = local.settings(choice.clients, view)
    facts = Facts(
        clients=choice.clients,
        weights=population.weights[choice.clients],
        num_examples=population.sizes[choice.clients],
        asked_steps=asked,
        local_steps=done,
        local_work=local.local_work(done, settings),
        local_lr=settings["lr"],
        multiplicity=choice.multiplicity,
        inclusion_prob=choice.inclusion_prob,
        num_clients=population.num_clients,
    )
    here = done > 0
    rejected: dict[int, str] = {}
    while here.any():
        kept = facts.keep(here)
        chosen = {name: values[here] for name, values in settings.items()}
        coefficients = None
        if not isinstance(plan.aggregation, Rowwise):
            coefficients = plan.aggregation.coefficients(kept)
        share = kept.weights * kept.multiplicity
        answer: Trained = yield Train(
            round=view.round,
            streams=view.streams,
            model=state.model,
            buffers=state.buffers,
            clients=kept.clients,
            steps=kept.local_steps,
            local=local,
            settings=chosen,
            coefficients=coefficients,
            buffer_weights=share / share.sum(),
            wants_norms=plan.server.wants_norms,
        )
        if answer.finite.all():
            return Outcome(asked, np.where(here, done, 0), kept, answer, coefficients, rejected, {})
        rejected |= {int(c): "not finite" for c in kept.clients[~answer.finite]}
        here = here & ~np.isin(facts.clients, kept.clients[~answer.finite])
    return Outcome(asked, np.where(here, done, 0), facts.keep(here), None, None, rejected, {})


def _advance(plan: Plan, view: View, state: State, outcome: Outcome) -> Tensor:
    """Combine the answers and move the model; return what is to be measured."""
    answer = outcome.answer
    if answer is None:
        return state.model
    state.last_losses = state.last_losses.copy() if not state.last_losses.flags.writeable else state.last_losses
    state.last_losses[answer.clients] = answer.loss
    direction, coefficients, memory = _combine(plan, view, state, outcome)
    state.aggregation, outcome.coefficients = memory, coefficients
    step = Step(direction=direction, coefficients=coefficients, square_norms=answer.square_norms, facts=outcome.facts)
    moved = plan.server.advance(state.model, step, state.server)
    state.model, state.server = moved.model, moved.memory
    state.buffers = answer.buffers if answer.buffers is not None else state.buffers
    outcome.metrics |= moved.metrics
    return state.model if moved.evaluate is None else moved.evaluate


def _combine(plan: Plan, view: View, state: State, outcome: Outcome) -> tuple[Tensor, Floats, Memory]:
    answer = cast(Trained, outcome.answer)
    if isinstance(plan.aggregation, Rowwise):
        rows = Rows(outcome.facts, cast(Tensor, answer.delta))
        return plan.aggregation.combine(rows, state.aggregation, view)
    coefficients = cast(Floats, outcome.coefficients)
    direction = answer.reduced
    if direction is None:  # an engine that returns rows leaves the sum to us
        delta = cast(Tensor, answer.delta)
        direction = delta.new_tensor(coefficients) @ delta
    return direction, coefficients, state.aggregation


def _measure(plan: Plan, state: State, model: Tensor) -> Steps[Evaluated | None]:
    if not plan.evaluate.is_due(state.round, plan.rounds):
        return None
    per_client = plan.evaluate.clients_due(state.round, plan.rounds)
    measured: Evaluated = yield Evaluate(round=state.round, model=model, buffers=state.buffers, per_client=per_client)
    return measured


def _empty_record(population: Population, measured: Evaluated | None) -> Record:
    return Record(
        round=0,
        num_clients=population.num_clients,
        up=NO_CLIENTS,
        asked=NO_CLIENTS,
        multiplicity=NO_CLIENTS,
        answered=NO_CLIENTS,
        asked_steps=NO_CLIENTS,
        local_steps=NO_CLIENTS,
        coefficients=NO_VALUES,
        losses=NO_VALUES,
        metrics={} if measured is None else measured.metrics,
    )


def _record(
    plan: Plan, view: View, up: Ids, choice: Choice, outcome: Outcome, measured: Evaluated | None, probes: Costs
) -> Record:
    facts, asked = outcome.facts, choice.clients
    place = np.searchsorted(asked, facts.clients)
    coefficients, losses = np.zeros(len(asked)), np.full(len(asked), np.nan)
    if outcome.answer is not None:
        coefficients[place] = outcome.coefficients
        losses[place] = outcome.answer.loss
    wanted = plan.selection.cohort_size
    events = []
    if len(up) == 0:
        events.append("nobody was up")
    elif wanted is not None and int(choice.multiplicity.sum()) < wanted:
        events.append(f"asked {int(choice.multiplicity.sum())} of {wanted}: too few were up")
    if len(asked) and outcome.answer is None:
        events.append("nobody answered")
    size = view.model.numel() * view.model.element_size()
    used = samples_used(facts.num_examples, facts.local_steps, plan.local.batch_size, plan.local.batches)
    train = Costs(
        bytes_down=len(asked) * size,
        bytes_up=(len(facts) + len(outcome.rejected)) * size,
        gradient_evaluations=int(used.sum()),
    )
    return Record(
        round=view.round,
        num_clients=view.population.num_clients,
        up=up,
        asked=asked,
        multiplicity=choice.multiplicity,
        answered=facts.clients if outcome.answer is not None else NO_CLIENTS,
        asked_steps=outcome.asked_steps,
        local_steps=outcome.done_steps,
        coefficients=coefficients,
        losses=losses,
        rejected=outcome.rejected,
        metrics=outcome.metrics | ({} if measured is None else measured.metrics),
        client_accuracy=None if measured is None else measured.client_accuracy,
        costs=train + probes,
        events=tuple(events),
        finished=view.round == view.rounds,
    )


def settle(result: T | Generator[Request, Any, T]) -> Steps[T]:
    """Let a rule be a plain function or a generator that asks first."""
    if isinstance(result, Generator):
        settled: T = yield from result
        return settled
    return result


class Meter:
    """Counts what rules ask for besides training."""

    def __init__(self) -> None:
        self.down = self.up = self.samples = 0

    def watch(self, steps: Steps[T]) -> Steps[T]:
        """Pass requests through, counting probes."""
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as stop:
                return cast(T, stop.value)
            answer = yield request
            if isinstance(request, Probe) and isinstance(answer, Probed):
                self.down += len(request.clients)
                self.up += len(request.clients) if request.what == "gradient" else 0
                self.samples += answer.samples

    def costs(self, model: Tensor) -> Costs:
        """Return what the probes cost: the model down, and gradients up."""
        size = model.numel() * model.element_size()
        return Costs(bytes_down=self.down * size, bytes_up=self.up * size, probe_evaluations=self.samples)
