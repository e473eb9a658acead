"""What does not go together on the axes that every plan has, with personal models, FedBuff or privacy."""

import torch

from turnout.coordinator.plan import Plan
from turnout.coordinator.predicates.predicate import Predicate, allowed_draws, where
from turnout.protocols import Local
from turnout.traits import Traits

HORVITZ_THOMPSON = ("ht", "ht-fleet")  # weightings by inclusion probability


def _draws_otherwise(traits: Traits) -> bool:
    return traits.aggregation.privacy is not None and traits.selection.data_independent not in allowed_draws(traits)


def _assumes(traits: Traits, sampling: str) -> bool:
    return traits.aggregation.privacy is not None and traits.aggregation.privacy.sampling == sampling


def _divides_by_other(plan: Plan, traits: Traits) -> bool:
    privacy = traits.aggregation.privacy
    is_other = privacy is not None and plan.selection.cohort_size not in (None, privacy.cohort_size)
    return is_other and not _draws_otherwise(traits)


def _never_overlaps(plan: Plan) -> bool:
    size, rule = plan.selection.cohort_size, plan.asynchrony
    return rule is not None and size is not None and size <= rule.buffer_size < rule.concurrency


WEIGHTS = (
    Predicate(
        "aggregation",
        "aggregation.weighting",
        lambda plan, traits: (
            traits.aggregation.weighting in HORVITZ_THOMPSON and not traits.selection.knows_inclusion_prob
        ),
        'weighting = "{traits.aggregation.weighting}" needs inclusion probabilities; {selection} does not know them. '
        'Set aggregation.weighting to "ratio" or "mean", or select with Uniform, Poisson, or Weighted with '
        "replacement.",
    ),
    Predicate(
        "aggregation",
        "aggregation.weighting",
        lambda plan, traits: traits.aggregation.weighting == "ht-fleet" and traits.availability.probability is None,
        'weighting = "ht-fleet" needs the probability that each client is available; {availability} does not know '
        'it. Set aggregation.weighting to "ht", or fleet.availability to bernoulli, for example.',
    ),
    Predicate(
        "aggregation",
        "selection.cohort_size",
        lambda plan, traits: traits.aggregation.needs_everyone and plan.selection.cohort_size is not None,
        "{aggregation} needs every available client in the cohort, because its coefficients p_k are not corrected "
        "for client sampling; got cohort_size = {plan.selection.cohort_size}. Leave selection.cohort_size out, or "
        "aggregate with FedNova.",
    ),
    Predicate(
        "aggregation",
        "selection.cohort_size",
        lambda plan, traits: (
            plan.selection.cohort_size is not None and plan.selection.cohort_size < traits.aggregation.least_cohort_size
        ),
        "the attackers it tolerates need cohort_size >= {traits.aggregation.least_cohort_size}; got "
        "{plan.selection.cohort_size}. Set selection.cohort_size to {traits.aggregation.least_cohort_size} or more, "
        "or lower aggregation.num_attackers.",
    ),
    Predicate(
        "selection",
        "aggregation.weighting",
        lambda plan, traits: traits.selection.represents_others and traits.aggregation.weighting != "mean",
        'represent = true needs an aggregation with weighting = "mean"; got {traits.aggregation.weighting}. '
        'Set aggregation.weighting to "mean", or selection.represent to false.',
    ),
    Predicate(
        "selection",
        "aggregation.weighting",
        lambda plan, traits: (
            traits.selection.is_biased_to_large_updates
            and traits.aggregation.weighting not in (None, *HORVITZ_THOMPSON)
        ),
        'large updates are sent more often, which only weighting = "ht" corrects; got '
        '"{traits.aggregation.weighting}". Set aggregation.weighting to "ht".',
    ),
    Predicate(
        "selection",
        "local.control",
        lambda plan, traits: traits.selection.trains_clients and plan.local.client_state is not None,
        "it trains clients before the round, without their control variates. "
        'Set local.control to "none", or select with "uniform".',
    ),
    Predicate(
        "selection",
        "selection.preferred_seconds",
        lambda plan, traits: traits.selection.needs_seconds and plan.fleet.clock is None,
        "preferred_seconds needs a clock that predicts how long clients take; this fleet has none. "
        'Change selection.preferred_seconds to "none", or set fleet.clock, for example to {{ use = "deadline" }}.',
    ),
)
LOCAL_WORK = (
    Predicate(
        "aggregation",
        "local.correction",
        lambda plan, traits: (
            traits.aggregation.divides_by_work == "always"
            and traits.local.preconditioned
            and traits.local.correction == "none"
        ),
        "{aggregation} divides each update by its number of steps, which does not include the preconditioner that "
        '{local} applies to each step. Set local.correction = "joint" and aggregate with Joint, '
        "or use SGD at the clients.",
    ),
    Predicate(
        "aggregation",
        "aggregation.use",
        lambda plan, traits: traits.aggregation.divides_by_work == "always" and traits.local.correction == "joint",
        '{local} with correction = "joint" already divides each update by its work, and {aggregation} would divide '
        "again. Aggregate with Joint.",
    ),
    Predicate(
        "aggregation",
        "aggregation.use",
        lambda plan, traits: traits.aggregation.divides_by_work != "never" and traits.local.correction == "local",
        '{local} with correction = "local" already divides each update by its work, and {aggregation} would divide '
        'again. Set aggregation.use = "fedavg" or "scheme-b", or local.correction = "none".',
    ),
    Predicate(
        "aggregation",
        "local.correction",
        lambda plan, traits: traits.aggregation.needs_inverse_rows and traits.local.correction != "joint",
        '{aggregation} needs a local solver with correction = "joint"; {local} has correction = '
        '"{traits.local.correction}". Set local.correction = "joint" on an adaptive solver, or aggregate with FedAvg.',
    ),
    Predicate(
        "local",
        "aggregation.use",
        lambda plan, traits: traits.local.correction == "joint" and not traits.aggregation.needs_inverse_rows,
        'correction = "joint" sends updates divided by C and needs Joint, which restores a common scale; '
        'got {aggregation}. Set aggregation.use = "joint", or local.correction to "local" or "none".',
    ),
    Predicate(
        "local",
        "server.use",
        lambda plan, traits: traits.local.correction == "joint" and plan.server.wants_norms,
        '{server} uses the norms of the updates, and correction = "joint" sends updates divided by C. '
        'Set server.use = "sgd", or local.correction = "none".',
    ),
    Predicate(
        "server",
        "server.use",
        lambda plan, traits: traits.server.needs_weighted_sum and not traits.aggregation.is_weighted_sum,
        "its learning rate needs a direction that is a weighted sum of the client updates; {aggregation} has another "
        'one. Set server.use = "sgd", or aggregate with FedAvg.',
    ),
    Predicate(
        "work",
        "local.steps",
        lambda plan, traits: traits.work.unit == "epochs" and traits.local.counts_steps,
        'unit = "epochs" needs work asked in epochs; local.steps asks for steps. '
        'Set local.epochs instead, or fleet.work.unit = "steps".',
    ),
    Predicate(
        "membership",
        "turnover.reboot",
        lambda plan, traits: (
            plan.fleet.membership is not None and plan.turnover.reboots_fast and traits.aggregation.is_rowwise
        ),
        "a fast reboot boosts coefficients before updates are combined, and {aggregation} has none by then. "
        'Set turnover.reboot = "vanilla", or aggregate with FedAvg, FedNova or a scheme.',
    ),
)


PERSONAL = (
    Predicate(
        "aggregation",
        "aggregation.use",
        lambda plan, traits: traits.aggregation.divides_by_work == "always" and not traits.local.work_is_linear,
        "{aggregation} divides each update by its work, and an update of {local} is no weighted sum of gradients. "
        'Set aggregation.use = "fedavg", or local.use = "sgd".',
    ),
    Predicate(
        "personal",
        "local.use",
        lambda plan, traits: traits.personal.needs_inner_solution and not traits.local.has_inner_solution,
        '{personal} reports the inner solution that the local solver "moreau" finds; {local} has none. '
        'Set local.use = "moreau", or personal.use = "ditto".',
    ),
    Predicate(
        "personal",
        "local",
        lambda plan, traits: (
            traits.personal.kept_names is not None and (plan.local.client_state is not None or bool(plan.local.keeps))
        ),
        "parameters that stay at the client are not sent, and what {local} keeps for the whole model is made of what "
        'is sent. Set local.control = "none" and local.momentum_reset = "round".',
    ),
    Predicate(
        "personal",
        "local",
        lambda plan, traits: traits.personal.repeats_shared_steps and not _is_plain(plan.local),
        "{personal} does the shared steps a second time beside the personal ones, as plain SGD, and {local} does "
        "others. Use SGD at the clients without momentum, weight_decay, prox_strength, lr_decay, clip_norm and "
        "control, or leave personal out.",
    ),
    Predicate(
        "personal",
        "personal.strength",
        lambda plan, traits: _pull(plan, traits) >= 2,
        "personal steps diverge where the learning rate times the strength is 2 or more; got "
        "{plan.personal.strength:g} times the rate. Lower personal.strength or personal.lr.",
    ),
    Predicate(
        "personal",
        "asynchrony",
        lambda plan, traits: plan.personal is not None and plan.asynchrony is not None,
        "what clients keep is written when a round ends, and {asynchrony} has updates of several rounds under way. "
        "Leave asynchrony out.",
    ),
)


def _is_plain(local: Local) -> bool:
    """Whether a local step is a step of plain SGD, as far as the solver says."""
    has_state = local.client_state is not None or any(local.begin([torch.zeros(1, 1)]))
    return local.cycle == (0,) and not local.features and not has_state


def _pull(plan: Plan, traits: Traits) -> float:
    """Return the learning rate of personal steps times the strength of their pull towards the shared model."""
    lr = traits.local.lr if traits.personal.lr is None else traits.personal.lr
    return traits.personal.strength * lr if traits.personal.has_shared_model else 0.0


_async = where("asynchrony", lambda plan, traits: plan.asynchrony is not None)
ASYNCHRONY = (
    _async(
        "fleet.clock",
        lambda plan, traits: plan.fleet.clock is None,
        'it needs the time each client takes. Set fleet.clock, for example {{ use = "deadline" }}.',
    ),
    _async(
        "fleet.clock",
        lambda plan, traits: traits.clock.displaces or traits.clock.has_deadline,
        "the server does not wait, so there is no round for a deadline or over-selection to end. "
        "Drop deadline_seconds and over_selection of fleet.clock.",
    ),
    _async(
        "selection.cohort_size",
        lambda plan, traits: _never_overlaps(plan),
        "a cohort of {plan.selection.cohort_size} cannot fill a buffer of {plan.asynchrony.buffer_size} before its "
        "last client returns, so the server would wait for all of them and {plan.asynchrony.concurrency} would never "
        "train at the same time. Set selection.cohort_size above asynchrony.buffer_size, or leave it out.",
    ),
    _async(
        "local.control",
        lambda plan, traits: plan.local.client_state is not None,
        'control variates need rounds that all clients share. Set local.control = "none".',
    ),
    _async(
        "local",
        lambda plan, traits: bool(plan.local.keeps),
        'solver state that clients keep needs rounds that all share. Set local.momentum_reset = "round".',
    ),
    _async(
        "local.effort",
        lambda plan, traits: traits.local.observe is not None,
        "an effort that depends on the loss needs rounds that all clients share. Set local.steps or local.epochs.",
    ),
    _async(
        "aggregation.weighting",
        lambda plan, traits: traits.aggregation.weighting in HORVITZ_THOMPSON,
        'the probability that a client\'s update is in a buffer is not known. Set aggregation.weighting = "mean".',
    ),
    _async(
        "filtering",
        lambda plan, traits: not traits.filtering.keeps_everyone,
        "a filter needs a round that all clients share. Leave filtering out.",
    ),
    _async(
        "asynchrony",
        lambda plan, traits: plan.fleet.membership is not None or plan.assist is not None,
        "arrivals, departures and server rounds need rounds that all clients share. Leave them out.",
    ),
)


_private = where("aggregation", lambda plan, traits: traits.aggregation.privacy is not None)
PRIVACY = (
    _private(
        "selection.use",
        lambda plan, traits: _draws_otherwise(traits),
        'sampling = "{traits.aggregation.privacy.sampling}" needs a selection that does not read data, without '
        "replacement; got {selection}. Set selection.use to {draws}, without replacement.",
    ),
    _private(
        "selection.cohort_size",
        lambda plan, traits: (
            _assumes(traits, "fixed") and not _draws_otherwise(traits) and plan.selection.cohort_size is None
        ),
        'sampling = "fixed" needs a sampled cohort; every client is selected. '
        'Set selection.cohort_size, or aggregation.sampling = "none".',
    ),
    _private(
        "aggregation.cohort_size",
        lambda plan, traits: _divides_by_other(plan, traits),
        "the sum is divided by cohort_size = {traits.aggregation.privacy.cohort_size}, but "
        "{plan.selection.cohort_size} clients are selected. "
        "Set aggregation.cohort_size to {plan.selection.cohort_size}.",
    ),
    _private(
        "fleet.clock.over_selection",
        lambda plan, traits: not _assumes(traits, "fixed") and traits.clock.displaces,
        "with over-selection a client that is in time displaces another one, so the sum changes by up to 2C, not C. "
        'Set fleet.clock.over_selection = 1, or aggregation.sampling = "fixed", which counts 2C.',
    ),
    _private(
        "filtering",
        lambda plan, traits: not traits.filtering.keeps_everyone,
        "a filter reads data before selection, outside the guarantee. Leave filtering out.",
    ),
    _private(
        "local.control",
        lambda plan, traits: plan.local.client_state is not None,
        'control variates carry unclipped updates from round to round. Set local.control = "none".',
    ),
    _private(
        "local.effort",
        lambda plan, traits: traits.local.observe is not None,
        "an effort that depends on training losses reveals them without noise. Set local.steps instead.",
    ),
    _private(
        "server.use",
        lambda plan, traits: plan.server.wants_norms,
        '{server} reads unclipped update norms. Set server.use = "sgd".',
    ),
    _private(
        "asynchrony",
        lambda plan, traits: plan.asynchrony is not None,
        "the accounting does not cover updates to older models. Leave asynchrony out.",
    ),
    _private(
        "aggregation",
        lambda plan, traits: plan.assist is not None or plan.fleet.membership is not None,
        "the accounting covers no server rounds, arrivals or departures. Leave assist and membership out.",
    ),
    _private(
        "fleet.availability",
        lambda plan, traits: traits.availability.requires is not None,
        "{availability} has clients take part by the loss of the model on their samples, which reveals it without "
        "noise. Set fleet.availability to another rule.",
    ),
    _private(
        "attack",
        lambda plan, traits: traits.attack.colludes,
        "attackers that see others' updates reveal them, each up to C. Leave attack out, or set another.",
    ),
)
RULES = (*WEIGHTS, *LOCAL_WORK, *PERSONAL, *ASYNCHRONY, *PRIVACY)
