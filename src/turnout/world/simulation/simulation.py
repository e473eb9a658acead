"""A simulated world: it answers the round from the fleet's rules, and asks an engine for the arithmetic.

A simulation knows beforehand how far each client will get. So it weighs the updates before they exist, and an engine
sums them block by block: memory does not grow with the cohort.
"""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator import Plan, State, coordinate
from turnout.coordinator.drifting import at_round
from turnout.coordinator.widths import parts_for, usable_parts
from turnout.ids import is_among
from turnout.local.batches import steps_per_epoch
from turnout.metrics import means_of
from turnout.offset import Offset
from turnout.orders import Order
from turnout.protocols import Local, Memory, Population, View
from turnout.requests import (
    NOBODY,
    Census,
    Collect,
    Dispatch,
    Evaluate,
    Evaluated,
    Expect,
    Expected,
    Fit,
    Present,
    Recall,
    Recalled,
    Record,
    Returns,
    Settle,
    Settled,
    Steps,
    Trained,
)
from turnout.requirement import LossesAlone, Requirement, TrainAlone
from turnout.rows import Facts
from turnout.streams import Streams
from turnout.submodels import Devices, Parts
from turnout.world.answering import Answers, serve
from turnout.world.simulation.adversaries import with_adversaries
from turnout.world.simulation.appeal import Appeals, losses_alone
from turnout.world.simulation.client_store import ClientStore
from turnout.world.simulation.dispatched import Dispatched, progress_landed, progress_of
from turnout.world.simulation.in_flight import InFlight
from turnout.world.simulation.own_models import OwnModels
from turnout.world.simulation.widths import UpdateRoom, evaluate_parts, loaded, seconds_per_step, train_parts

EVERYONE = slice(None)  # of an order: each client whose work is wanted returned


def simulate(plan: Plan, population: Population, state: State, streams: Streams) -> Steps[State]:
    """Run a plan in simulation from the given state; yields requests to an engine and records, returns the state."""
    world = Simulation(plan=plan, population=population, streams=streams, memory=state.world)
    if (plan.personal is not None or world.requirement is not None) and world.store.first_model is None:
        world.store.first_model = state.model.clone()
        world.store.first_buffers = None if state.buffers is None else state.buffers.clone()
    kept, mean = plan.local.client_state, state.local.get("shared")
    if kept is not None and mean is not None and mean.any() and kept.name not in world.store.tables:
        raise KeyError(kept.name)  # a state that was changed: going on would take every client's row for zeros
    steps = serve(world, ANSWERS, coordinate(plan, population, state, streams))
    return (yield from (steps if plan.attack is None else with_adversaries(plan, population, streams, steps)))


@dataclass(slots=True, kw_only=True)
class Simulation:
    """Clients, devices and their time, as the fleet's rules have them."""

    plan: Plan
    population: Population
    streams: Streams
    memory: Memory = field(default_factory=dict)  # as saved; it is replaced, never changed in place
    store: ClientStore = field(init=False)
    in_flight: InFlight = field(init=False)
    appeals: Appeals = field(init=False)
    seconds: float = field(init=False)  # time at the start of the round
    elapsed: float = field(init=False, default=0.0)  # since then
    everyone: Ids = field(init=False)  # members in this round
    view: View | None = field(init=False, default=None)  # of the last census
    dispatched: Dispatched | None = field(init=False, default=None)
    unsound: int = field(init=False, default=0)  # personal rows of this round that were not finite
    update_room: UpdateRoom = field(default_factory=UpdateRoom)
    replayed: tuple[int, int] = field(init=False, default=(0, 0))  # steps asked in this round: recorded, all

    def __post_init__(self) -> None:
        self.store = ClientStore.of(self.memory, self.population.num_clients, self.plan.memory.table_bytes)
        self.in_flight = InFlight.of(self.memory)
        self.appeals = Appeals.of(self.memory, self.population.num_clients)
        self.seconds = float(self.memory.get("seconds", 0.0))
        self.everyone = self.population.everyone

    def saved(self) -> Memory:
        """Return what the world carries from one round to the next, as plain values and tables."""
        appeals = {} if self.requirement is None else self.appeals.saved()
        return {"seconds": self.seconds, **self.in_flight.saved(), **self.store.saved(), **appeals}

    @property
    def requirement(self) -> Requirement | None:
        """What clients require of the model to be up; None: they do not look at it."""
        return self.plan.traits.availability.requires

    def census(self, request: Census) -> Steps[Present]:
        """Return who belongs, who is up, and what time it is."""
        rule, view = self.plan.fleet.membership, self._view(request.round, request.model, request.buffers)
        members = None if rule is None else rule.members(view)
        if members is not None:
            self.everyone = members
            view = replace(view, population=replace(self.population, everyone=members))
        self.view = view
        if request.round > 0 and self.requirement is not None:
            first = cast(Tensor, self.store.first_model)
            view = replace(view, appeal=(yield from self.appeals.measure(self.plan, view, self.requirement, first)))
        up = NOBODY if request.round == 0 else self.plan.fleet.availability.up(view)
        return Present(
            members=members, up=up, sim_seconds=self.seconds, seconds_per_step=seconds_per_step(self.plan, view)
        )

    def train_alone(self, request: TrainAlone) -> Steps[LossesAlone]:
        """Have clients train a model alone, whatever the fleet allows, and measure it."""
        return (yield from losses_alone(request, self.population.sizes, self.population.holdout_sizes))

    def expect(self, request: Expect) -> Steps[Expected]:
        """Return how far these clients would get this round, and how long all of the asked work would take them."""
        yield from ()
        view = self._view(request.round, request.model)
        done = self._completed(request.local, request.clients, request.steps, view)
        clock = self.plan.fleet.clock
        if clock is None:
            return Expected(steps=done)
        known = replace(view, devices=Devices(seconds_per_step=seconds_per_step(self.plan, view)))
        sent, view = self._load(parts_for(self.plan, known, request.clients, request.steps), request, view)
        return Expected(steps=done, seconds=clock.seconds(request.clients, request.steps, sent, view))

    def dispatch(self, request: Dispatch) -> Steps[None]:
        """Decide how far each client will get."""
        yield from ()
        order, clock = request.order, self.plan.fleet.clock
        if order.whole or order.on_server:
            self.dispatched = Dispatched(order, order.steps)
            return
        view = self._view(order.round, order.model)
        done = self._completed(order.local, order.clients, order.steps, view)
        work = Dispatched(order, done, sequence=request.sequence, most_at_work=request.most_at_work or 0)
        self.dispatched = work
        if request.sequence is None:
            self._count_replayed(order, order.clients, done, view)
            if clock is not None:
                sent, its_view = self._load(order.parts, order, view)
                work.timing = clock.run(order.clients, done, sent, its_view)
            work.progress = progress_of(order.clients, done, work.timing)
        if work.timing is not None:
            work.done = np.where(work.timing.late, 0, np.minimum(work.timing.done, done))

    def collect(self, request: Collect) -> Steps[Returns]:
        """Have an engine train those who return in time, and hand over their updates."""
        work = self.dispatched
        assert work is not None
        if request.first is not None:
            return (yield from self._collect_first(work, request))
        seconds = self._waited(work)
        self.elapsed += 0.0 if work.is_counted else seconds  # not again for a part of it
        work.is_counted, order = True, request.order
        if work.order.by_model:
            work = work.of(order)
        here: Any = work.done > 0
        if request.clients is not order.clients:
            here &= is_among(order.clients, request.clients)
        here = EVERYONE if here.all() else here
        clients, steps = (order.clients, work.done) if here is EVERYONE else (order.clients[here], work.done[here])
        late = NOBODY if work.timing is None else order.clients[work.timing.late]
        returned = {"clients": clients, "steps": steps, "rounds": np.full(len(clients), order.round)}
        known: dict[str, Any] = {**returned, "late": late, "seconds": seconds, "progress": work.progress}
        if not len(clients):
            return Returns(work=None, facts=None, **known)
        prob = self._availability_prob(clients, order)
        facts = order.weighing.facts(clients, steps, prob)
        coefficients = None if request.wants_rows else order.weighing.coefficients(facts)
        fit = self._fit(order, facts, here, coefficients, request.into)
        answer = self.store.receive(fit, (yield from self._trained(fit, order.parts)))
        next_rows = answer.next_rows if isinstance(answer, Trained) and fit.offset is not None else None
        is_own = isinstance(next_rows, Tensor) and fit.offset is not None and fit.offset.table.is_spare(next_rows)
        weighed: dict[str, Any] = {"facts": facts, "coefficients": coefficients, "availability_prob": prob}
        return Returns(work=answer, rows_checked=is_own, **weighed, **known)

    def _trained(self, fit: Fit, parts: Parts | None) -> Steps[Any]:
        """Have an engine train clients, each its part of the model, together with what they keep for themselves."""
        if self.plan.personal is None or fit.on_server:
            if parts is None:
                return (yield fit)
            return (yield from train_parts(fit, parts.keep(fit.clients), self.plan.layout, self.update_room))
        learned = yield from self._own_models(fit.round, fit.model).train(self.plan.personal, fit)
        self.unsound += self.store.keep(fit.clients, learned)
        return learned.sent

    def evaluate(self, request: Evaluate) -> Steps[Evaluated]:
        """Have an engine measure the model and, where every client is measured, the models that they use."""
        if not self.plan.traits.personal.has_shared_model:
            return (yield from self._own_models(request.round, request.model).measured(self.plan.personal, request))
        measured: Evaluated = yield request
        if self.plan.width is not None:
            view = self._view(max(request.round, 1), request.model)
            measured = yield from evaluate_parts(usable_parts(self.plan, view), request, measured)
        if not request.per_client:
            return measured
        values, used = {} if self.requirement is None else self.appeals.preferred(measured), None
        if self.plan.personal is not None:
            models = self._own_models(request.round, request.model)
            own, used = yield from models.evaluate(self.plan.personal, request)
            values |= own
        metrics = measured.metrics | means_of(values)
        return replace(measured, personal=values, metrics=metrics, client_models=used)

    def _own_models(self, round: int, model: Tensor) -> OwnModels:
        view = self._view(max(round, 1), model)
        view = replace(view, devices=Devices(seconds_per_step=seconds_per_step(self.plan, view)))
        return OwnModels(plan=self.plan, view=view, store=self.store, holdout_sizes=self.population.holdout_sizes)

    def _waited(self, work: Dispatched) -> float:
        """Return how long the server waits for an order."""
        order, clock = work.order, self.plan.fleet.clock
        if clock is None or order.on_server:
            return 0.0
        if work.timing is not None:
            return work.timing.round_seconds
        sent, view = self._load(order.parts, order, self._view(order.round, order.model))
        return float(clock.seconds(order.clients, order.steps, sent, view).max())

    def _load(self, parts: Parts | None, request: Order | Expect, view: View) -> tuple[int | Ids, View]:
        """Return the bytes that travel to each client and back, and a view that says what its local steps cost."""
        if parts is None:
            return self.plan.sent_bytes(request.model), view
        return parts.numbers(request.clients) * request.model.element_size(), loaded(parts, request.clients, view)

    def _fit(self, order: Order, facts: Facts, here: Any, coefficients: Floats | None, into: Tensor | None) -> Fit:
        """Return the request that trains these clients of an order."""
        share = facts.weights * facts.multiplicity
        return Fit(
            round=order.round,
            streams=order.streams,
            model=order.model,
            buffers=order.buffers,
            clients=facts.clients,
            steps=facts.local_steps,
            local=order.local,
            settings=order.settings if here is EVERYONE else {n: values[here] for n, values in order.settings.items()},
            coefficients=coefficients,
            buffer_weights=share / max(share.sum(), 1e-300),
            wants_norms=order.wants_norms,
            offset=self._offset(order, facts),
            kept={} if order.on_server else self.store.solver_tables(order.local, order.model),
            into=None if coefficients is not None else into,
            on_server=order.on_server,
            blocks=order.blocks if order.blocks is None or here is EVERYONE else order.blocks[here],
        )

    def _offset(self, order: Order, facts: Facts) -> Offset | None:
        """Return what is subtracted from the clients' gradients, where they remember something."""
        kept = order.local.client_state
        if kept is None or order.shared is None:
            return None
        offset = Offset(shared=order.shared, table=self.store.table(kept.name, order.model))
        if not order.refreshes_from_updates:
            return offset
        return replace(offset, scale=kept.scale(facts), weights=facts.weights)

    def _collect_first(self, work: Dispatched, request: Collect) -> Steps[Returns]:
        """Play the clock until enough clients are back; everyone sent off with one model trains in one request."""
        order, clock = work.order, self.plan.fleet.clock
        assert clock is not None
        assert work.sequence is not None
        assert request.first is not None
        view = self._view(order.round, order.model)
        place = np.searchsorted(order.clients, work.sequence)
        able = work.done[place] > 0  # the others never return
        queue, steps = work.sequence[able], work.done[place][able]
        duration = clock.seconds(queue, steps, self.plan.sent_bytes(order.model), view)
        events = self.in_flight.play(queue, duration, self.seconds, (request.first, work.most_at_work))
        sent = np.sort(queue[: len(events.sent_at)])
        if len(sent):
            here = is_among(order.clients, sent)
            facts = order.weighing.facts(sent, work.done[here], None)
            fit = replace(self._fit(order, facts, here, None, None), wants_norms=False)
            fit = replace(fit, buffer_weights=np.full(len(sent), 1.0 / len(sent)))
            answer = yield fit
            by_id = np.argsort(queue[: len(sent)])
            seconds, sent_at = duration[: len(sent)][by_id], np.asarray(events.sent_at)[by_id]
            self.in_flight = self.in_flight.joined(fit, order, answer, (seconds, sent_at + seconds))
        landed, self.in_flight = self.in_flight.split([client for _, client in events.arrived])
        closed = events.arrived[-1][0] if events.arrived else self.seconds + clock.idle_seconds
        self.elapsed += closed - self.seconds
        last = int(np.flatnonzero(is_among(work.sequence, sent)).max(initial=-1))
        last = len(work.sequence) - 1 if events.had_room else last  # the rest were sent off, too, and none returns
        lost = np.sort(work.sequence[: last + 1][~able[: last + 1]])
        self._count_replayed(order, np.union1d(sent, lost), work.done, view)
        return Returns(
            clients=landed.clients,
            steps=landed.steps,
            rounds=landed.rounds,
            work=landed.trained(),
            facts=None,
            sent=np.union1d(sent, lost),
            lost=lost,
            seconds=closed - self.seconds,
            progress=progress_landed(landed),
        )

    def settle(self, request: Settle) -> Steps[Settled]:
        """Write what the accepted clients now remember; it is kept when the round's record says so."""
        return (yield from self.store.settle(request))

    def recall(self, request: Recall) -> Steps[Recalled]:
        """Return a weighted sum of what clients remember."""
        yield from ()
        return Recalled(total=self.store.mean(request.name, request.weights))

    def close(self, record: Record) -> Steps[None]:
        """End the round: time goes on, and clients keep or forget what it taught them."""
        self.seconds, self.elapsed = self.seconds + self.elapsed, 0.0
        self.store.close(kept=record.step_kept)
        if record.state is not None:
            record.state.world = self.saved()  # the record has a copy of its own
        (recorded, asked), self.replayed = self.replayed, (0, 0)
        if asked:
            record = replace(record, metrics=record.metrics | {"replay_recorded": recorded / asked})
        if self.requirement is not None:
            costs, metrics = self.appeals.close()
            record = replace(record, costs=record.costs + costs, metrics=record.metrics | metrics)
        if self.unsound:
            note = f"{self.unsound} clients' own models were not finite and stay as they were"
            record, self.unsound = replace(record, events=(*record.events, note)), 0
        yield record

    def _count_replayed(self, order: Order, clients: Ids, done: Ids, view: View) -> None:
        """Count how many of the steps asked of these clients were recorded, where the fleet replays a run."""
        work, clock = self.plan.traits.work.is_recorded, self.plan.traits.clock.is_recorded
        if work is None and clock is None:
            return
        here = is_among(order.clients, clients)
        asked, is_recorded = order.steps[here], np.ones(len(clients), dtype=bool)
        if work is not None:
            is_recorded &= work(asked, clients, view)
        if clock is not None:
            is_recorded &= clock(done[here], clients, view)
        recorded, total = self.replayed
        self.replayed = recorded + int(asked[is_recorded].sum()), total + int(asked.sum())

    def _view(self, round: int, model: Tensor, buffers: Tensor | None = None) -> View:
        """Return what fleet rules may look at: what they saw at the census, where it is the same round and model."""
        if self.view is not None and self.view.round == round and self.view.model is model:
            return self.view
        people = at_round(self.population, round)
        return View(
            round=round,
            rounds=self.plan.rounds,
            streams=self.streams,
            population=people if self.plan.fleet.membership is None else replace(people, everyone=self.everyone),
            model=model,
            buffers=buffers,
            sim_seconds=self.seconds,
        )

    def _completed(self, local: Local, clients: Ids, asked: Ids, view: View) -> Ids:
        """Return how many of the asked steps each client completes; whole epochs where the fleet counts in them."""
        work = self.plan.fleet.work
        if self.plan.traits.work.unit == "steps":
            done: Ids = np.minimum(work.done(asked, clients, view), asked)
            return done
        batch_size = None if local.batches == "full" else local.batch_size
        per_epoch = steps_per_epoch(view.population.sizes[clients], batch_size)
        batches, length = max(local.cycle) + 1, len(local.cycle)  # mini-batches and steps of a cycle
        epochs = -(-asked * batches // (per_epoch * length))  # one that is asked for in part counts as one
        cycles = -(-work.done(epochs, clients, view) * per_epoch // batches)
        return np.asarray(np.minimum(cycles * length, asked))

    def _availability_prob(self, clients: Ids, order: Order) -> Floats | None:
        """Return how likely each of these clients was to be up, where the fleet knows it."""
        probability = self.plan.traits.availability.probability
        if order.on_server or probability is None:
            return None
        return probability(clients, self._view(order.round, order.model))


ANSWERS: Answers[Simulation] = {
    Census: Simulation.census,
    Expect: Simulation.expect,
    Dispatch: Simulation.dispatch,
    Collect: Simulation.collect,
    Settle: Simulation.settle,
    Recall: Simulation.recall,
    Evaluate: Simulation.evaluate,
    TrainAlone: Simulation.train_alone,
    Record: Simulation.close,
}
