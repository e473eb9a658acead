"""One server step: the aggregation combines the updates, and the server rule moves the model."""

from typing import Any, cast

import numpy as np
from torch import Tensor

from turnout.coordinator.asking import Asker
from turnout.coordinator.collecting import Collected
from turnout.coordinator.generators import settle
from turnout.coordinator.plan import Plan, State
from turnout.coordinator.server_step import FIRST_ROUNDS, first_norms, move, norms_of
from turnout.protocols import Combined, View
from turnout.requests import Steps, Trained
from turnout.rows import Rows


def advance(
    plan: Plan, view: View, state: State, collected: Collected, ask: Asker, anyone_up: bool
) -> Steps[dict[str, float]]:
    """Combine the updates and move the model; without updates it stays as it is, unless the aggregation steps alone.

    Returns the rules' metrics.
    """
    answer = collected.answer if collected.answer is not None else _of_nobody(plan, view, anyone_up)
    if answer is None:
        return {}
    state.hear(answer.clients, answer.loss)
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
        rows = Rows(collected.facts, delta, answer.extra, answer.loss, collected.parts)
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
