"""The server's part of what clients remember: the mean Σ_i p_i row_i of their rows.

The rows live with the clients, in the world's client store. The server keeps their mean under p, sends it with each
order, and learns how it changed when the clients whose updates were accepted have taken their new rows.
"""

from typing import cast

import numpy as np
import torch
from torch import Tensor

from turnout.coordinator.plan import Plan, State
from turnout.costs import NO_COSTS, Costs
from turnout.orders import Order
from turnout.protocols import View
from turnout.requests import Recall, Recalled, Settle, Settled, Steps, Trained
from turnout.rows import Facts


def shared_of(plan: Plan, state: State, model: Tensor) -> Tensor | None:
    """Return the mean of what clients remember, zero at first; None for a solver whose clients remember nothing."""
    if plan.local.client_state is None:
        return None
    return cast(Tensor, state.local["shared"]) if "shared" in state.local else torch.zeros_like(model)


def follow_weights(plan: Plan, view: View, state: State) -> Steps[None]:
    """Bring the mean up to date where clients joined or left and p has changed."""
    kept, weights = plan.local.client_state, view.population.weights
    if kept is None:
        return
    if "shared" not in state.local:
        state.local = {**state.local, "shared": torch.zeros_like(state.model), "shares": weights}
    elif not np.array_equal(state.local["shares"], weights):
        recalled: Recalled = yield Recall(round=view.round, name=kept.name, weights=weights)
        mean = recalled.total if recalled.total is not None else state.local["shared"]
        state.local = {**state.local, "shared": mean.to(state.model.dtype), "shares": weights}


def settle_clients(plan: Plan, state: State, order: Order, facts: Facts, trained: Trained) -> Steps[Costs]:
    """Let the accepted clients keep their new rows, and take over the new mean; return what that cost."""
    if plan.local.client_state is None and not plan.local.keeps and plan.personal is None:
        return NO_COSTS
    settled: Settled = yield Settle(order=order, facts=facts, trained=trained)
    if settled.shared is None:
        return Costs(
            bytes_down=settled.bytes_down,
            bytes_up=settled.bytes_up,
            probe_evaluations=settled.samples,
            gradient_evaluations=settled.gradients,
        )
    shared = settled.shared if settled.finite else torch.full_like(settled.shared, torch.nan)  # the step is dropped
    state.local = {**state.local, "shared": shared}
    size = len(facts) * shared.numel() * shared.element_size()  # the mean goes down, the row's change comes back
    return Costs(
        bytes_down=size + settled.bytes_down,
        bytes_up=size + settled.bytes_up,
        probe_evaluations=settled.samples,
        gradient_evaluations=settled.gradients,
    )
