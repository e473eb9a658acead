"""Rounds without waiting: clients start and finish at their own times, and a round is one server step.

When a client finishes is known from the clock before it has trained, so the simulated events of a server step are
played first and everyone sent off with one model trains in one request. What is still on its way is carried in the
state, rows and all, and comes in later with its staleness.
"""

import heapq
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.asking import Asker, Meter
from turnout.coordinator.generators import is_rowwise, settle
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.server_step import FIRST_ROUNDS, begin, commit, dropped, first_norms, move, norms_of, remember
from turnout.coordinator.training import planned
from turnout.errors import ConfigError
from turnout.local.batches import samples_used
from turnout.protocols import Choice, Clock, Combined, Linear, Memory, View
from turnout.requests import Costs, Record, Steps, Train, Trained
from turnout.rows import Facts, Rows

COLUMNS = ("client", "draws", "version", "finish", "asked", "steps", "work", "lr", "loss")


@dataclass(slots=True)
class Events:
    """What happens on the clock until the next server step."""

    sent_at: list[float] = field(default_factory=list)  # of the first places of the queue
    arrived: list[tuple[float, int]] = field(default_factory=list)  # (time, client)


def play(flight: list[tuple[float, int]], queue: Ids, seconds: Floats, now: float, limits: tuple[int, int]) -> Events:
    """Play the clock until the buffer is full or nobody is on the way.

    Args:
        flight: (finish, client) of those on their way.
        queue: clients to send off next, in order.
        seconds: how long each of the queue takes.
        now: simulated time.
        limits: the buffer's size, and how many may be at work.
    """
    events, heap = Events(), list(flight)
    heapq.heapify(heap)

    def send(at: float) -> None:
        while len(events.sent_at) < len(queue) and len(heap) < limits[1]:
            place = len(events.sent_at)
            events.sent_at.append(at)
            heapq.heappush(heap, (at + float(seconds[place]), int(queue[place])))

    while len(events.arrived) < limits[0]:
        send(now)  # not after the last: the place it leaves is taken after the server step, with the new model
        if not heap:
            break
        events.arrived.append(heapq.heappop(heap))
        now = events.arrived[-1][0]
    return events


def buffered_round(plan: Plan, view: View, state: State) -> Steps[Record]:
    """Run one server step; return its record, without measurements."""
    assert plan.asynchrony is not None
    clock, meter, ask = _clock(plan, view), Meter(), Asker(plan, view, state)
    flight = state.flight or _nothing(state.model)
    up = plan.fleet.availability.up(view)
    pool = np.setdiff1d(up, flight["client"])
    choosing = settle(plan.selection.choose(pool, replace(view, memory=state.selection), ask))
    choice: Choice = yield from meter.watch(choosing, view.population.sizes)
    notes = remember(state, "selection", choice.memory)
    order = view.streams.generator("asynchrony", view.round).permutation(len(choice.clients))
    facts, _ = planned(plan, view, choice.clients[order], choice.multiplicity[order], None)
    facts = facts.keep(facts.local_steps > 0)  # the others never answer
    queue = facts.clients
    seconds = clock.seconds(queue, facts.local_steps, _bytes(view.model), view)
    on_the_way = list(zip(flight["finish"].tolist(), flight["client"].tolist(), strict=True))
    limits = (plan.asynchrony.buffer_size, plan.asynchrony.concurrency)
    events = play(on_the_way, queue, seconds, state.sim_seconds, limits)
    sent = queue[: len(events.sent_at)]
    if len(sent):
        finish = np.asarray(events.sent_at) + seconds[: len(sent)]
        request, joined = _send_off(plan, view, facts.multiplicity[: len(sent)], sent, finish)
        trained: Trained = yield request
        flight = _joined(flight, joined, trained)
    here = np.isin(flight["client"], [client for _, client in events.arrived])
    landed, state.flight = _part(flight, here), _part(flight, ~here)
    before = begin(state)
    stepping = _server_step(plan, view, state, landed, ask)
    coefficients, metrics = yield from meter.watch(stepping, view.population.sizes)
    wrong = commit(state, before)
    if wrong is not None:
        notes += (dropped(wrong, _answer_of(landed)),)
        coefficients, metrics = np.zeros_like(coefficients), {}
    closed = events.arrived[-1][0] if events.arrived else state.sim_seconds + clock.idle_seconds
    costs = _costs(plan, view, landed, len(sent), closed - state.sim_seconds) + meter.costs(view.model)
    state.sim_seconds, state.round = closed, view.round
    record = _record(view, up, flight, here, coefficients)
    return replace(record, metrics=metrics, costs=costs, events=(*record.events, *notes))


def _clock(plan: Plan, view: View) -> Clock:
    """Return the fleet's clock; a model with running statistics is refused."""
    assert plan.fleet.clock is not None
    if view.buffers is not None:
        raise ConfigError(
            f"{type(plan.asynchrony).__name__} cannot average running statistics, which come back with changes of "
            "different ages; this model has some. Use one without, with GroupNorm in place of BatchNorm for example."
        )
    return plan.fleet.clock


def _send_off(plan: Plan, view: View, draws: Ids, sent: Ids, finish: Floats) -> tuple[Train, Memory]:
    """Return the request that trains those sent off, in the order of ids, and their columns."""
    order = np.argsort(sent)
    clients = sent[order]
    facts, settings = planned(plan, view, clients, draws[order], None)
    columns = {
        "client": clients,
        "draws": facts.multiplicity,
        "version": np.full(len(clients), view.round),
        "finish": finish[order],
        "asked": facts.asked_steps,
        "steps": facts.local_steps,
        "work": facts.local_work,
        "lr": facts.local_lr,
    }
    request = Train(
        round=view.round,
        streams=view.streams,
        model=view.model,
        buffers=view.buffers,
        clients=clients,
        steps=facts.local_steps,
        local=plan.local,
        settings=settings,
        coefficients=None,
        buffer_weights=np.full(len(clients), 1.0 / len(clients)),
    )
    return request, columns


def _server_step(
    plan: Plan, view: View, state: State, landed: Memory, ask: Asker
) -> Steps[tuple[Floats, dict[str, float]]]:
    """Combine what has landed and move the model; return the coefficients and metrics."""
    assert plan.asynchrony is not None
    coefficients = np.zeros(len(landed["client"]))
    finite = torch.isfinite(landed["rows"]).all(1).cpu().numpy()
    if not finite.any():
        return coefficients, {}
    used = _part(landed, finite)
    staleness = view.round - used["version"]
    weight = plan.asynchrony.weight(staleness)
    facts = _facts(view, used)
    state.last_losses[facts.clients] = used["loss"]
    if is_rowwise(plan.aggregation):
        weighed = used["rows"] * used["rows"].new_tensor(weight)[:, None]
        second = used["extra"] if used["extra"].shape[1] else None
        rows = Rows(facts, weighed, second, used["loss"])
        combined: Combined = yield from settle(plan.aggregation.combine(rows, state.aggregation, view, ask))
    else:
        share = cast(Linear, plan.aggregation).coefficients(facts) * weight
        direction = used["rows"].new_tensor(share) @ used["rows"]
        combined = Combined(direction=direction, coefficients=share, memory=state.aggregation)
    squares = used["rows"].double().square().sum(1).cpu().numpy() if plan.server.wants_norms else None
    moved = move(plan, state, combined, facts, squares)
    if moved is None:
        return coefficients, {"staleness": float(staleness.mean())} | combined.metrics
    coefficients[finite] = combined.coefficients
    metrics = {"staleness": float(staleness.mean())} | combined.metrics | moved.metrics
    if view.round <= FIRST_ROUNDS:
        metrics |= first_norms(combined.direction, facts.multiplicity, norms_of(used["rows"], squares))
    return coefficients, metrics


def _answer_of(landed: Memory) -> Trained:
    """Return the answers that were used as one."""
    finite = torch.isfinite(landed["rows"]).all(1).cpu().numpy()
    used = _part(landed, finite)
    return Trained(
        clients=used["client"], steps=used["steps"], loss=used["loss"], finite=finite[finite], delta=used["rows"]
    )


def _facts(view: View, landed: Memory) -> Facts:
    clients = landed["client"]
    return Facts(
        clients=clients,
        weights=view.population.weights[clients],
        num_examples=view.population.sizes[clients],
        asked_steps=landed["asked"],
        local_steps=landed["steps"],
        local_work=landed["work"],
        local_lr=landed["lr"],
        multiplicity=landed["draws"],
        inclusion_prob=None,
        num_clients=view.population.num_counted,
    )


def _record(view: View, up: Ids, flight: Memory, here: np.ndarray, coefficients: Floats) -> Record:
    """Return the record: everyone who was sent off or came in during the step; what is on its way has done nothing."""
    involved = here | (flight["version"] == view.round)
    seen, came = _part(flight, involved), here[involved]
    shares = np.zeros(len(came))
    shares[came] = coefficients
    used = came & torch.isfinite(seen["rows"]).all(1).cpu().numpy()
    return Record(
        round=view.round,
        num_clients=view.population.num_clients,
        up=up,
        asked=seen["client"],
        multiplicity=seen["draws"],
        answered=seen["client"][used],
        asked_steps=seen["asked"],
        local_steps=np.where(used, seen["steps"], 0),
        coefficients=shares,
        losses=np.where(used, seen["loss"], np.nan),
        rejected={int(client): str(flight["reasons"][str(client)]) for client in seen["client"][came & ~used]},
        events=() if len(came) else ("nobody was at work",),
        finished=view.round == view.rounds,
    )


def _costs(plan: Plan, view: View, landed: Memory, sent: int, seconds: float) -> Costs:
    sizes = view.population.sizes[landed["client"]]
    used = samples_used(sizes, landed["steps"], plan.local.batch_size, plan.local.batches)
    size = _bytes(view.model)
    return Costs(
        bytes_down=sent * size,
        bytes_up=len(sizes) * size,
        gradient_evaluations=int(used.sum()),
        sim_seconds=seconds,
    )


def _bytes(model: Tensor) -> int:
    return model.numel() * model.element_size()


def _nothing(model: Tensor) -> Memory:
    kinds = {"finish": np.float64, "work": np.float64, "lr": np.float64, "loss": np.float64}
    columns: Memory = {name: np.zeros(0, dtype=kinds.get(name, np.int64)) for name in COLUMNS}
    return {**columns, "rows": model.new_zeros(0, model.numel()), "extra": model.new_zeros(0, 0), "reasons": {}}


def _joined(flight: Memory, joined: Memory, trained: Trained) -> Memory:
    """Return the flight with those just sent off, in the order of ids."""
    more = {**joined, "loss": trained.loss}
    columns = {name: np.concatenate([flight[name], more[name]]) for name in COLUMNS}
    delta = cast(Tensor, trained.delta)
    second = delta.new_zeros(len(delta), 0) if trained.extra is None else trained.extra
    reasons = flight["reasons"] | {str(client): reason for client, reason in trained.reasons.items()}
    both = {
        **columns,
        "rows": torch.cat([flight["rows"], delta]),
        "extra": _stacked(flight["extra"], second),
        "reasons": reasons,
    }
    return _part(both, np.argsort(columns["client"], kind="stable"))


def _stacked(upper: Tensor, lower: Tensor) -> Tensor:
    """Return second rows below each other; those of answers that have none are zeros."""
    width = max(upper.shape[1], lower.shape[1])
    parts = [rows if rows.shape[1] else rows.new_zeros(len(rows), width) for rows in (upper, lower)]
    return torch.cat(parts)


def _part(flight: Memory, which: np.ndarray) -> Memory:
    """Return some of the answers, by a mask or in an order."""
    columns = {name: flight[name][which] for name in COLUMNS}
    rows = {name: flight[name][torch.from_numpy(which)] for name in ("rows", "extra")}
    names = set(map(str, columns["client"].tolist()))
    return {**columns, **rows, "reasons": {name: why for name, why in flight["reasons"].items() if name in names}}
