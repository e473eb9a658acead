"""Check a plan: whether its rules go together, by the predicates, and whether they suit the clients and the model."""

from collections.abc import Iterator

from turnout.coordinator.plan import Plan, State
from turnout.coordinator.predicates import PREDICATES
from turnout.coordinator.predicates.predicate import called
from turnout.coordinator.predicates.requirements import trains_alone
from turnout.errors import ConfigError, Problem
from turnout.protocols import Population


def problems(plan: Plan) -> Iterator[Problem]:
    """Yield what is wrong with a plan, whatever the data."""
    for predicate in PREDICATES:
        if predicate.is_wrong(plan, plan.traits):
            yield Problem(predicate.message(plan), predicate.setting)


def problems_with(plan: Plan, population: Population) -> Iterator[Problem]:
    """Yield what is wrong with a plan on these clients."""
    found = list(problems(plan))
    yield from found
    traits, size = plan.traits, plan.selection.cohort_size
    algorithm = (
        traits.filtering,
        traits.selection,
        traits.assignment,
        traits.personal,
        traits.width,
        traits.aggregation,
        traits.attack,
    )
    for rule in (*algorithm, traits.availability, traits.work, traits.clock, traits.membership):
        if rule.population_problems is not None:
            yield from rule.population_problems(population)
    if size is not None and size > population.num_clients and not traits.selection.replacement:
        yield Problem(
            f"{called(plan.selection)} needs cohort_size <= the number of clients; "
            f"got {size} > {population.num_clients}. Set selection.cohort_size to {population.num_clients} or less.",
            "selection.cohort_size",
        )
    if plan.assist is not None and population.server_size == 0:
        yield Problem(
            f"{called(plan.assist)} needs samples at the server; this federation has none. "
            "Set data.server_samples to 50 or more.",
            "data.server_samples",
        )
    said = tuple(problem.setting for problem in found)
    yield from (each for each in drift_problems(plan, population) if not each.setting.startswith(said))
    if population.holdout_sizes is not None:
        yield from holdout_problems(plan, bool(population.holdout_sizes.any()))


def drift_problems(plan: Plan, population: Population) -> Iterator[Problem]:
    """Yield what is not defined for clients whose samples change with time."""
    if population.drift is None:
        return
    if plan.rounds > population.drift.most_rounds:
        yield Problem(
            f"These data have samples for {population.drift.num_steps} time steps of "
            f"{population.drift.rounds_per_step} rounds, which is {population.drift.most_rounds} rounds; got rounds = "
            f"{plan.rounds}. Set rounds to {population.drift.most_rounds} or less, or data.rounds_per_step higher.",
            "rounds",
        )
    relabels = plan.traits.attack.relabel is not None and plan.traits.attack.relabels
    for section, rule, why in (
        ("fleet.membership", plan.fleet.membership, "weights change with the samples, and not with arrivals"),
        ("asynchrony", plan.asynchrony, "an update of an older round was trained on fewer samples"),
        ("attack", plan.attack if relabels else None, "it would also change the labels on which models are measured"),
        ("personal", plan.personal, "a client's own model belongs to samples that do not change"),
    ):
        if rule is not None:
            yield Problem(f"{called(rule)} does not go with data that drift: {why}. Leave {section} out.", section)
    for section, name, requires in (
        ("aggregation", called(plan.aggregation), plan.traits.aggregation.requires),
        ("fleet.availability", called(plan.fleet.availability), plan.traits.availability.requires),
    ):
        if requires is not None and requires.is_alone:
            yield Problem(
                f'{name} with requirement = "alone" measures what a client requires once, on the samples that '
                f"it then has, and with data that drift these change. Set {section}.requirement to a number.",
                f"{section}.requirement",
            )


def holdout_problems(plan: Plan, has_holdout: bool) -> Iterator[Problem]:
    """Yield why clients cannot be measured, where none of them holds samples out."""
    every = plan.evaluate.clients_every
    if every > 0 and not has_holdout:
        yield Problem(
            f"evaluate.clients_every = {every} measures every client on its own hold-out, and this federation has "
            "none. Set evaluate.clients_every to 0, or hold samples out: data.holdout = 0.1, or holdout=0.1 of "
            "from_clients, from_dataset and from_flwr.",
            "evaluate.clients_every",
        )


def check(plan: Plan, population: Population) -> None:
    """Raise with everything that is wrong with a plan on these clients."""
    if found := list(problems_with(plan, population)):
        raise ConfigError.of(found)


def check_buffers(plan: Plan, has_buffers: bool) -> None:
    """Raise if a model has running statistics that a server that does not wait cannot average."""
    if has_buffers and trains_alone(plan):
        raise ConfigError(
            'requirement = "alone" cannot keep running statistics for the model that each client trains alone; this '
            "model has some. Use one without, with GroupNorm in place of BatchNorm for example, or set a number.",
            setting="model",
        )
    if plan.personal is not None and has_buffers and not plan.traits.personal.keeps_statistics:
        raise ConfigError(
            f"{called(plan.personal)} cannot keep running statistics for each client's own model; this model has "
            "some. Use a model without, with GroupNorm in place of BatchNorm for example, or another personal rule: "
            "ditto, layers, moreau and fine-tune keep them.",
            setting="model",
        )
    if plan.asynchrony is not None and has_buffers:
        raise ConfigError(
            f"{called(plan.asynchrony)} cannot average running statistics, which return with updates of "
            "different ages; this model has some. Use one without, with GroupNorm in place of BatchNorm for example.",
            setting="model",
        )
    if plan.assignment is not None and has_buffers:
        raise ConfigError(
            f"{called(plan.assignment)} cannot keep running statistics for each model; this model has some. "
            "Use one without, with GroupNorm in place of BatchNorm for example.",
            setting="model",
        )


def check_models(plan: Plan, state: State) -> None:
    """Raise unless the state has as many models as the plan."""
    count = 0 if state.models is None else len(state.models)
    need = 0 if plan.assignment is None else plan.assignment.num_models
    if count != need:
        raise ConfigError(
            f"A plan with an assignment of {need} models needs a state with as many; got {count}. "
            "Pass models=, one row per model, to State.start.",
            setting="assignment",
        )
