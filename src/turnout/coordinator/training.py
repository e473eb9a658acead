"""The cohort's work: what each client is asked, what comes back, what is taken out, and control variates."""

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.coordinator.controls import controls_for, refresh_controls
from turnout.coordinator.generators import is_rowwise
from turnout.coordinator.plan import Plan, State
from turnout.local.batches import steps_per_epoch
from turnout.optional import counts_work, knows_probability
from turnout.protocols import Choice, Linear, Timing, View
from turnout.requests import Costs, Steps, Train, Trained
from turnout.row_table import RowTable
from turnout.rows import Facts

T = TypeVar("T")


@dataclass(slots=True)
class Outcome:
    """What the cohort sent back, after bad answers were taken out."""

    asked_steps: Ids
    done_steps: Ids  # of those asked; 0 where nothing came
    facts: Facts  # of the accepted
    answer: Trained | None  # None: nobody answered
    coefficients: Floats | None = None
    rejected: dict[int, str] = field(default_factory=dict)
    late: Ids = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    metrics: dict[str, float] = field(default_factory=dict)
    round_seconds: float = 0.0
    events: tuple[str, ...] = ()
    reused: bool = False  # the rows came from training that a filter or a selection rule had asked for
    extra: Costs = field(default_factory=Costs)  # of control variates

    def drop(self, event: str) -> None:
        """Note that the step these answers made was dropped: none of them counts."""
        self.events += (event,)
        if self.coefficients is not None:
            self.coefficients = np.zeros_like(self.coefficients)


def planned(
    plan: Plan, view: View, clients: Ids, multiplicity: Ids, inclusion_prob: Floats | None
) -> tuple[Facts, dict[str, Floats]]:
    """Return what these clients are asked and will have done, and their solver's settings."""
    local, population, up = plan.local, view.population, plan.fleet.availability
    asked = local.asked(clients, view)
    done = _completed(plan, view, clients, asked)
    settings = local.settings(clients, view)
    facts = Facts(
        clients=clients,
        weights=population.weights[clients],
        num_examples=population.sizes[clients],
        asked_steps=asked,
        local_steps=done,
        local_work=local.local_work(done, settings),
        local_lr=settings["lr"],
        multiplicity=multiplicity,
        inclusion_prob=inclusion_prob,
        num_clients=population.num_counted,
        availability_prob=up.probability(clients, view) if knows_probability(up) else None,
    )
    return facts, settings


def _completed(plan: Plan, view: View, clients: Ids, asked: Ids) -> Ids:
    """Return how many of the asked steps each client completes; whole epochs where the fleet counts in them."""
    work, local = plan.fleet.work, plan.local
    if not (counts_work(work) and work.unit == "epochs"):
        done: Ids = np.minimum(plan.fleet.work.done(asked, clients, view), asked)
        return done
    batch_size = None if local.batches == "full" else local.batch_size
    per_epoch = steps_per_epoch(view.population.sizes[clients], batch_size)
    epochs = -(-asked // per_epoch)  # one that is asked for in part counts as one
    return np.asarray(np.minimum(work.done(epochs, clients, view) * per_epoch, asked))


def on_time(plan: Plan, view: View, facts: Facts, settings: dict[str, Floats]) -> tuple[Facts, Timing | None]:
    """Let the clock decide how much of the work is done in time."""
    if plan.fleet.clock is None:
        return facts, None
    size = view.model.numel() * view.model.element_size()
    timing = plan.fleet.clock.run(facts.clients, facts.local_steps, size, view)
    done = np.where(timing.late, 0, np.minimum(timing.done, facts.local_steps))
    work = plan.local.local_work(done, settings)
    return replace(facts, local_steps=done, local_work=work), timing


def train_cohort(plan: Plan, view: View, choice: Choice, state: State, held: Trained | None) -> Steps[Outcome]:
    """Ask the cohort to train, or use what a filter already has; answers that are not finite are taken out."""
    facts, settings = planned(plan, view, choice.clients, choice.multiplicity, choice.inclusion_prob)
    facts, timing = (
        on_time(plan, view, facts, settings) if held is None else (_as_held(plan, facts, held, settings), None)
    )
    facts = _boosted(plan, view, state, facts)
    outcome = Outcome(facts.asked_steps, facts.local_steps, facts, None)
    if timing is not None:
        outcome.late, outcome.round_seconds = facts.clients[timing.late], timing.round_seconds
    here = facts.local_steps > 0
    at_hand, outcome.reused = held, held is not None
    while here.any():
        kept = facts.keep(here)
        outcome.coefficients = None
        if not is_rowwise(plan.aggregation):
            outcome.coefficients = cast(Linear, plan.aggregation).coefficients(kept)
            if kept.boost is not None:
                outcome.coefficients = outcome.coefficients * kept.boost
        if at_hand is not None:
            answer = _taken(at_hand, kept.clients)
        else:
            chosen = {name: values[here] for name, values in settings.items()}
            answer = yield _request(plan, view, state, kept, chosen, outcome.coefficients)
        if answer.finite.all():
            outcome.facts, outcome.answer = kept, answer
            outcome.extra = yield from refresh_controls(plan, view, state, kept, answer)
            break
        bad = kept.clients[~answer.finite]
        outcome.rejected |= {int(c): answer.reasons[int(c)] for c in bad}
        here &= ~np.isin(facts.clients, bad)
        at_hand = answer if answer.delta is not None else None  # a sum must be made again, rows only picked
    if outcome.answer is None:
        outcome.facts, outcome.coefficients = facts.keep(np.zeros(len(facts), dtype=bool)), None
    outcome.done_steps = np.where(here, facts.local_steps, 0)
    return outcome


def _request(
    plan: Plan, view: View, state: State, kept: Facts, settings: dict[str, Floats], coefficients: Floats | None
) -> Train:
    share = kept.weights * kept.multiplicity
    controls = None
    if plan.local.control != "none":
        controls = controls_for(state, view, kept if plan.local.control == "average" else None)
    return Train(
        round=view.round,
        streams=view.streams,
        model=state.model,
        buffers=state.buffers,
        clients=kept.clients,
        steps=kept.local_steps,
        local=plan.local,
        settings=settings,
        coefficients=coefficients,
        buffer_weights=share / max(share.sum(), 1e-300),
        wants_norms=plan.server.wants_norms,
        controls=controls,
        into=None if coefficients is not None else _room(state, len(kept)),
    )


def _room(state: State, count: int) -> Tensor:
    """Return memory for so many rows: that of the table they will be remembered in, where there is one."""
    table = state.aggregation.get("table")
    if not isinstance(table, RowTable):
        return state.room(count)
    state.rows = None  # from the first round, before there was a table
    return table.spare(count)


def _as_held(plan: Plan, facts: Facts, held: Trained, settings: dict[str, Floats]) -> Facts:
    """Return the facts of rows that are there already: what was done when a rule asked, on the clock as well."""
    there, steps = np.isin(facts.clients, held.clients), np.zeros_like(facts.local_steps)
    steps[there] = held.steps[np.searchsorted(held.clients, facts.clients[there])]
    return replace(facts, local_steps=steps, local_work=plan.local.local_work(steps, settings))


def reusing(steps: Steps[T], held: Trained | None) -> Steps[T]:
    """Pass requests on; training that a filter has had done already is answered from its rows."""
    answer: Any = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as stop:
            return cast(T, stop.value)
        if held is not None and isinstance(request, Train) and np.isin(request.clients, held.clients).all():
            place = np.searchsorted(held.clients, request.clients)
            if np.array_equal(held.steps[place], request.steps):
                answer = _taken(held, request.clients)
                continue
        answer = yield request


def _taken(held: Trained, clients: Ids) -> Trained:
    """Return a filter's answer for these clients alone."""
    place = np.searchsorted(held.clients, clients)
    delta = cast(Tensor, held.delta)[torch.from_numpy(place)]
    return Trained(
        clients=clients,
        steps=held.steps[place],
        loss=held.loss[place],
        finite=held.finite[place],
        delta=delta,
        extra=None if held.extra is None else held.extra[torch.from_numpy(place)],
        square_norms=delta.double().square().sum(1).cpu().numpy(),
        buffers=held.buffers,
        reasons=held.reasons,
    )


def _boosted(plan: Plan, view: View, state: State, facts: Facts) -> Facts:
    """Give clients that have just arrived the factor their reboot asks for."""
    if plan.fleet.membership is None or not state.members["arrived"].any():
        return facts
    arrived = state.members["arrived"][facts.clients]
    since = np.where(arrived > 0, view.round - arrived + 1, 0)
    return replace(facts, boost=plan.fleet.membership.boost(since))
