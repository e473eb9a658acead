"""One round as a record for the journal."""

from dataclasses import replace

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.coordinator.collecting import Collected
from turnout.coordinator.plan import Plan, State
from turnout.costs import Costs
from turnout.ids import are_equal
from turnout.local.batches import samples_used
from turnout.metrics import reported
from turnout.protocols import Choice, Population, View
from turnout.requests import Evaluated, Record

NO_CLIENTS = np.zeros(0, dtype=np.int64)
NO_VALUES = np.zeros(0)
NO_SHARED_MODEL = (
    "there is no shared model: loss and accuracy are the means over clients of their own models, each on its hold-out"
)
UNTRAINED_SERVER = (
    "nobody trains the server's model of the family: loss and accuracy stay its own before training, and those that "
    "end in of_architecture are of what clients train"
)
NOBODY_EVER = "no client ever took part: no answer was used in any round"


def empty_record(round: int, population: Population, measured: Evaluated | None, **more: object) -> Record:
    """Return the record of a round in which no client was asked."""
    return Record(
        round=round,
        num_clients=population.num_clients,
        members=_members(population),
        asked=NO_CLIENTS,
        multiplicity=NO_CLIENTS,
        answered=NO_CLIENTS,
        asked_steps=NO_CLIENTS,
        local_steps=NO_CLIENTS,
        coefficients=NO_VALUES,
        losses=NO_VALUES,
        metrics={} if measured is None else measured.metrics,
        client_accuracy=None if measured is None else measured.client_accuracy,
        client_loss=None if measured is None else measured.client_loss,
        counted=_counted(population),
        personal={} if measured is None else measured.personal,
        client_models=None if measured is None else measured.client_models,
        **{"up": NO_CLIENTS, **more},  # type: ignore[arg-type]
    )


def _members(population: Population) -> Ids | None:
    """Return who belongs; None where clients neither join nor leave."""
    return None if population.counted is None else population.everyone


def _counted(population: Population) -> Ids | None:
    """Return who is in the objective; None where clients neither join nor leave."""
    return None if population.counted is None else np.flatnonzero(population.counted)


def _reused(plan: Plan, view: View, collected: Collected) -> Floats | None:
    """Return the weight of each client's stored gradients in the step: the aggregation's, and control variates.

    A client with control variates sends Δ_i = η_l ‖a_i‖₁ (g_i − c_i + Σ_j p_j c_j). With w_i = coefficient · η_l ‖a_i‖₁
    and W = Σ_i w_i, the step has stored gradients c_j with weight p_j W − w_j; c_j is 0 until client j first answers.
    """
    if not collected.step_kept:
        return None
    if plan.local.client_state is None or collected.coefficients is None:
        return collected.reused_weights
    weights, facts = np.zeros(view.population.num_clients), collected.facts
    weights[facts.clients] = collected.coefficients * facts.local_lr * facts.local_work  # w_i
    controls = np.where(np.isnan(view.last_losses), 0.0, view.weights * weights.sum() - weights)
    return controls if collected.reused_weights is None else controls + collected.reused_weights


def as_last(record: Record, state: State) -> Record:
    """Return a run's last record with a word on it if no client ever took part; any other record as it is."""
    if not record.finished or not np.isnan(state.last_losses).all():
        return record
    return replace(record, events=(*record.events, NOBODY_EVER))


def round_record(
    plan: Plan,
    view: View,
    up: Ids,
    choice: Choice,
    collected: Collected,
    measured: Evaluated | None,
    state: State,
) -> Record:
    """Return the record of a round of the clients, with what the run carries on from here."""
    facts, answer = collected.facts, collected.answer
    losses = _of_asked(collected, None if answer is None else answer.loss, np.nan)
    work = _of_asked(collected, None if answer is None else facts.local_lr * facts.local_work)
    coefficients = _of_asked(collected, None if answer is None else collected.coefficients)
    return Record(
        round=view.round,
        num_clients=view.population.num_clients,
        up=up,
        asked=collected.asked,
        multiplicity=collected.multiplicity,
        answered=facts.clients if answer is not None else NO_CLIENTS,
        asked_steps=collected.asked_steps,
        local_steps=collected.done_steps,
        coefficients=coefficients,
        losses=losses,
        work=work,
        outcomes=collected.outcomes(),
        progress=collected.reported(),
        members=_members(view.population),
        counted=_counted(view.population),
        assignment=collected.assignment,
        kept=collected.kept,
        reused=_reused(plan, view, collected),
        late=collected.late,
        rejected=collected.rejected,
        metrics={**reported(collected.metrics), **({} if measured is None else measured.metrics)},
        client_accuracy=None if measured is None else measured.client_accuracy,
        client_loss=None if measured is None else measured.client_loss,
        personal={} if measured is None else measured.personal,
        client_models=None if measured is None else measured.client_models,
        costs=_training_costs(plan, view, choice, collected),
        events=collected.events,
        finished=view.round == view.rounds,
        step_kept=collected.step_kept,
        state=state,
    )


def _of_asked(collected: Collected, values: Floats | None, other: float = 0.0) -> Floats:
    """Return a number for each client that was asked: these values of the accepted, and another for the rest."""
    asked, accepted = collected.asked, collected.facts.clients
    if values is not None and are_equal(asked, accepted):
        return values
    every = np.full(len(asked), other)
    if values is not None:
        every[np.searchsorted(asked, accepted)] = values
    return every


def _training_costs(plan: Plan, view: View, choice: Choice, collected: Collected) -> Costs:
    size, facts = plan.sent_bytes(view.model), collected.facts
    if collected.reused:  # training was paid for when a rule asked; rows that were not sent then are sent now
        sent = len(facts) * size if choice.trained is not None else 0
        return Costs(sim_seconds=collected.round_seconds, bytes_up=sent) + collected.extra
    clients, steps = collected.worked
    sizes = view.population.sizes if collected.sizes is None else collected.sizes
    used = samples_used(sizes[clients], steps, plan.local.batch_size, plan.local.batches, plan.local.cycle)
    parts = collected.parts
    if parts is not None:  # a narrow model is fewer bytes and less work
        number, senders = view.model.element_size(), np.union1d(facts.clients, np.array(list(collected.rejected), int))
        return collected.extra + Costs(
            bytes_down=int(parts.numbers(collected.asked).sum()) * number,
            bytes_up=int(parts.numbers(senders).sum()) * number,
            gradient_evaluations=round(float(used @ parts.step_costs(clients))),
            sim_seconds=collected.round_seconds,
        )
    training = Costs(
        bytes_down=collected.num_handed_out * size,
        bytes_up=(len(facts) + len(collected.rejected)) * size,
        gradient_evaluations=int(used.sum()),
        sim_seconds=collected.round_seconds,
    )
    return training + collected.extra


def first_events(plan: Plan) -> tuple[str, ...]:
    """Return what a reader should know of the model that is measured, before the first round."""
    if not plan.traits.personal.has_shared_model:
        return (NO_SHARED_MODEL,)
    if plan.traits.width.members_of is None or plan.traits.aggregation.trains_server_model:
        return ()
    return (UNTRAINED_SERVER,)


def events_of(plan: Plan, up: Ids, choice: Choice, collected: Collected) -> tuple[str, ...]:
    """Return what a reader should know of who was there and who answered."""
    events, drawn, wanted = [], int(choice.multiplicity.sum()), plan.selection.cohort_size
    if plan.asynchrony is None:
        if len(up) == 0:
            events.append("nobody was up")
        elif wanted is not None and drawn < wanted and len(up) < wanted:
            events.append(f"fewer than {wanted} clients were asked: too few were available")
        if len(choice.clients) and collected.answer is None:
            events.append("nobody answered")
    return (*events, *collected.events)
