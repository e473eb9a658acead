"""Control variates: what SCAFFOLD remembers of each client, and how it is refreshed.

    k_i  = c_i − c                                   taken off every gradient of client i
    c_i⁺ = k_i + Δ_i/(η_l‖a_i‖₁)        "average"    option II; the gradient at x is option I, "gradient"
    c    ← c + Σ_{i∈S} p_i (c_i⁺ − c_i)              so that c = Σ_i p_i c_i always

Differs from the paper: clients count by p_i and not 1/N, which is the same for equal data and without which unequal
clients are pulled to the optimum of another objective; the division is by ‖a_i‖₁ and not τ_i, which is the same for
plain SGD and keeps the control an average gradient under momentum, a pull or a decaying rate.
Reference: Karimireddy et al. SCAFFOLD. ICML 2020. arXiv:1910.06378.
"""

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from turnout.aggregation.fedvarp import shared_mean
from turnout.array_types import Floats
from turnout.coordinator.plan import Plan, State
from turnout.protocols import View
from turnout.requests import Controls, Costs, Probe, Probed, Steps, Trained
from turnout.rows import Facts


def controls_for(state: State, view: View, facts: Facts | None = None) -> Controls:
    """Return k_i = c_i − c; with the facts of a cohort that is asked for good, its next controls are asked for too."""
    weights = view.population.weights
    if "table" not in state.local:
        zero = torch.zeros_like(state.model)
        state.local = {**state.local, "table": view.table(), "control": zero, "shares": weights}
    elif not np.array_equal(state.local["shares"], weights):  # clients came or went
        control = shared_mean(state.local["table"], weights).to(state.model.dtype)
        state.local = {**state.local, "control": control, "shares": weights}
    controls = Controls(common=state.local["control"], table=state.local["table"])
    return controls if facts is None else replace(controls, scale=_scale(facts), weights=facts.weights)


def _scale(facts: Facts) -> Floats:
    """Return s_i, which makes an average gradient of a change: 1/(η_l‖a_i‖₁)."""
    scale: Floats = 1.0 / (facts.local_lr * facts.local_work)
    return scale


def refresh_controls(plan: Plan, view: View, state: State, facts: Facts, answer: Trained) -> Steps[Costs]:
    """Bring the controls of those who answered up to date; return what that cost."""
    if plan.local.control == "none":
        return Costs()
    table, control, probes = state.local["table"], state.local["control"], 0
    if plan.local.control == "average" and answer.controls is not None:
        after, average = answer.controls, cast(Tensor, answer.control_sum)
        moved = control * (1.0 - float(facts.weights.sum())) + average
    elif plan.local.control == "gradient":
        probed: Probed = yield Probe(
            round=view.round,
            streams=view.streams,
            model=state.model,
            buffers=state.buffers,
            clients=facts.clients,
            what="gradient",
        )
        after, probes = cast(Tensor, probed.gradient), probed.samples
        moved = control + after.new_tensor(facts.weights) @ (after - table.take(facts.clients))
    else:  # rows that a filter or a selection rule had trained
        change = cast(Tensor, answer.delta) * control.new_tensor(_scale(facts))[:, None] - control
        after = table.take(facts.clients) + change
        moved = control + after.new_tensor(facts.weights) @ change
    table.put(facts.clients, after)
    state.local = {**state.local, "control": moved}
    size = len(facts) * control.numel() * control.element_size()  # c goes down with the model, c_i⁺ − c_i comes back
    return Costs(bytes_down=size, bytes_up=size, probe_evaluations=probes)
