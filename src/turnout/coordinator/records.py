"""One round as a record for the journal."""

from dataclasses import replace

import numpy as np

from turnout.array_types import Ids
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.training import Outcome
from turnout.local.batches import samples_used
from turnout.metrics import reported
from turnout.protocols import Choice, Population, View
from turnout.requests import Costs, Evaluated, Record

NO_CLIENTS = np.zeros(0, dtype=np.int64)
NO_VALUES = np.zeros(0)
NOBODY_EVER = "no client ever took part: no answer was used in any round"


def empty_record(round: int, population: Population, measured: Evaluated | None, **more: object) -> Record:
    """Return the record of a round in which no client was asked."""
    return Record(
        round=round,
        num_clients=population.num_clients,
        asked=NO_CLIENTS,
        multiplicity=NO_CLIENTS,
        answered=NO_CLIENTS,
        asked_steps=NO_CLIENTS,
        local_steps=NO_CLIENTS,
        coefficients=NO_VALUES,
        losses=NO_VALUES,
        metrics={} if measured is None else measured.metrics,
        client_accuracy=None if measured is None else measured.client_accuracy,
        **{"up": NO_CLIENTS, **more},  # type: ignore[arg-type]
    )


def as_last(record: Record, state: State) -> Record:
    """Return a run's last record with a word on it if no client ever took part; any other record as it is."""
    if not record.finished or not np.isnan(state.last_losses).all():
        return record
    return replace(record, events=(*record.events, NOBODY_EVER))


def round_record(
    plan: Plan, view: View, up: Ids, choice: Choice, outcome: Outcome, measured: Evaluated | None, extra: Costs
) -> Record:
    """Return the record of a round of the clients."""
    facts, asked = outcome.facts, choice.clients
    place = np.searchsorted(asked, facts.clients)
    coefficients, losses = np.zeros(len(asked)), np.full(len(asked), np.nan)
    if outcome.answer is not None:
        coefficients[place] = outcome.coefficients
        losses[place] = outcome.answer.loss
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
        late=outcome.late,
        rejected=outcome.rejected,
        metrics={**reported(outcome.metrics), **({} if measured is None else measured.metrics)},
        client_accuracy=None if measured is None else measured.client_accuracy,
        costs=_training_costs(plan, view, choice, outcome) + extra,
        events=_events(plan, up, choice, outcome),
        finished=view.round == view.rounds,
    )


def _training_costs(plan: Plan, view: View, choice: Choice, outcome: Outcome) -> Costs:
    size = view.model.numel() * view.model.element_size()
    facts = outcome.facts
    if outcome.reused:  # training was paid for when a rule asked; rows that were not sent then are sent now
        sent = len(facts) * size if choice.trained is not None else 0
        return Costs(sim_seconds=outcome.round_seconds, bytes_up=sent) + outcome.extra
    used = samples_used(facts.num_examples, facts.local_steps, plan.local.batch_size, plan.local.batches)
    return (
        Costs(
            bytes_down=len(choice.clients) * size,
            bytes_up=(len(facts) + len(outcome.rejected)) * size,
            gradient_evaluations=int(used.sum()),
            sim_seconds=outcome.round_seconds,
        )
        + outcome.extra
    )


def _events(plan: Plan, up: Ids, choice: Choice, outcome: Outcome) -> tuple[str, ...]:
    events, drawn, wanted = [], int(choice.multiplicity.sum()), plan.selection.cohort_size
    if len(up) == 0:
        events.append("nobody was up")
    elif wanted is not None and drawn < wanted and len(up) < wanted:
        events.append(f"asked {drawn} of {wanted}: too few were up")
    if len(choice.clients) and outcome.answer is None:
        events.append("nobody answered")
    return (*events, *outcome.events)
