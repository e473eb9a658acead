"""What does not go together with clients that train models of different widths."""

import torch

from turnout.coordinator.plan import Plan
from turnout.coordinator.predicates.predicate import where


def _has_solver_state(plan: Plan) -> bool:
    """Whether the local solver carries anything from one step to the next beside the parameters."""
    return plan.local.cycle != (0,) or any(plan.local.begin([torch.zeros(1, 1)]))


_width = where("width", lambda plan, traits: plan.width is not None)
WIDTHS = (
    _width(
        "width.assign",
        lambda plan, traits: traits.width.needs_speed and traits.clock.pace is None,
        'assign = "by-speed" needs a clock that knows how fast devices are; this fleet has none. '
        'Set fleet.clock, for example to {{ use = "deadline" }}, or width.assign to "fixed".',
    ),
    _width(
        "aggregation.use",
        lambda plan, traits: traits.aggregation.is_rowwise and not traits.aggregation.trains_server_model,
        "{aggregation} combines whole updates, and clients of different widths send different parameters. "
        'Set aggregation.use = "fedavg", for example, or leave width out.',
    ),
    _width(
        "local",
        lambda plan, traits: plan.local.client_state is not None or bool(plan.local.keeps),
        "what {local} keeps between rounds is of the whole model, and a client trains a part of it. "
        'Set local.control = "none" and local.momentum_reset = "round", or leave width out.',
    ),
    _width(
        "local",
        lambda plan, traits: traits.width.step_rates is not None and _has_solver_state(plan),
        "the width changes at every local step, and {local} carries momentum or other state from step to step. "
        'Use plain SGD at the clients, or set width.use = "nested".',
    ),
    _width(
        "personal",
        lambda plan, traits: (
            plan.personal is not None and not traits.personal.trains_members and traits.width.members_of is None
        ),
        "{personal} trains whole models at the clients, and these train a part. Leave personal or width out.",
    ),
    _width(
        "personal",
        lambda plan, traits: traits.personal.trains_members and traits.width.members_of is None,
        "a client of {personal} has a whole model of its own, and {width} cuts a part of the server's for every round. "
        'Set model.use = "family" and width.use = "architectures", or leave width out.',
    ),
    _width(
        "asynchrony",
        lambda plan, traits: plan.asynchrony is not None,
        "updates of different rounds have different parameters, and {asynchrony} averages them. "
        "Leave asynchrony or width out.",
    ),
    _width(
        "attack",
        lambda plan, traits: traits.attack.forge is not None,
        "{attack} forges updates of the whole model, and clients send a part. Leave attack out, or set label-flip.",
    ),
    _width(
        "filtering",
        lambda plan, traits: not traits.filtering.keeps_everyone,
        "{filtering} may average updates before the round does, and they have different parameters. "
        "Leave filtering or width out.",
    ),
    _width(
        "selection.use",
        lambda plan, traits: traits.selection.trains_clients,
        "{selection} compares updates before they are sent, and they have different parameters. "
        'Set selection.use = "uniform".',
    ),
    _width(
        "server.use",
        lambda plan, traits: traits.server.needs_weighted_sum,
        "{server} needs a direction that is one weighted sum of the updates, and here every parameter has weights of "
        'its own. Set server.use = "sgd".',
    ),
)
