"""What does not go together with several models: one predicate for each combination that is not defined."""

from turnout.coordinator.predicates.predicate import where

WITHIN_A_MODEL = (None, "mean", "ratio")  # weightings whose coefficients sum to one over any part of a cohort


_several = where("assignment", lambda plan, traits: plan.assignment is not None)
SEVERAL_MODELS = (
    _several(
        "filtering",
        lambda plan, traits: traits.filtering.needs_one_model,
        "{filtering} has clients train or score one model before it is known which model each trains. "
        "Leave filtering out.",
    ),
    _several(
        "selection.use",
        lambda plan, traits: traits.selection.needs_one_model or traits.selection.trains_clients,
        "{selection} compares clients by their losses, gradients or updates at one model, and each client has its own. "
        'Set selection.use = "uniform", or selection.estimate = "last" where the rule has it.',
    ),
    _several(
        "aggregation.use",
        lambda plan, traits: traits.aggregation.needs_one_model,
        "{aggregation} stores updates of one model, or compares them with the server's own update of it. "
        'Set aggregation.use = "fedavg".',
    ),
    _several(
        "aggregation.weighting",
        lambda plan, traits: traits.aggregation.weighting not in WITHIN_A_MODEL or traits.aggregation.needs_everyone,
        "the coefficients of {aggregation} sum to one over all clients, not over those of one model, so each step "
        'would be too short. Set aggregation.use = "fedavg" with aggregation.weighting = "ratio" or "mean".',
    ),
    _several(
        "aggregation.use",
        lambda plan, traits: traits.aggregation.least_cohort_size > 1,
        "{aggregation} tolerates a number of attackers in a cohort of {traits.aggregation.least_cohort_size} or more, "
        "and how many clients train each model is not known. Set aggregation.use to median or trimmed-mean.",
    ),
    _several(
        "aggregation.use",
        lambda plan, traits: traits.aggregation.privacy is not None,
        "{aggregation} divides the sum of the updates by the size of the whole cohort, and its accounting does not "
        'cover how a client comes to its model. Set aggregation.use = "fedavg".',
    ),
    _several(
        "local.control",
        lambda plan, traits: plan.local.client_state is not None,
        "{local} has control variates, which are gradients of one model, and the server keeps one mean of them for all "
        'clients. Set local.control = "none".',
    ),
    _several(
        "local",
        lambda plan, traits: bool(plan.local.keeps) and not traits.assignment.is_fixed,
        "what {local} keeps at a client belongs to the model that it trained, and it may train another one in the next "
        'round. Set local.momentum_reset = "round", or assignment.use = "given".',
    ),
    _several(
        "local.effort",
        lambda plan, traits: traits.local.observe is not None,
        "{local} has an effort that follows the loss of one model. Set local.steps or local.epochs.",
    ),
    _several(
        "width",
        lambda plan, traits: plan.width is not None,
        "{width} has clients train parts of one model, and each model would need parts of its own. Leave width out.",
    ),
    _several(
        "personal",
        lambda plan, traits: plan.personal is not None,
        "{personal} keeps what clients train beside one shared model. Leave personal out.",
    ),
    _several(
        "asynchrony",
        lambda plan, traits: plan.asynchrony is not None,
        "{asynchrony} collects updates of several rounds in one buffer for one model. Leave asynchrony out.",
    ),
    _several(
        "assist",
        lambda plan, traits: plan.assist is not None,
        "in a server round {assist} has the server train one model on its own samples. Leave assist out.",
    ),
    _several(
        "fleet.availability",
        lambda plan, traits: traits.availability.requires is not None,
        "{availability} has clients stay while one model serves them, and each client has its own. "
        "Set fleet.availability to another rule.",
    ),
    _several(
        "fleet.membership",
        lambda plan, traits: plan.fleet.membership is not None,
        "the arrivals and departures of {membership} change the weights of one objective, and each model has its own. "
        "Leave fleet.membership out.",
    ),
)
