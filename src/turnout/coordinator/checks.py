"""Combinations that do not make sense, each refused with the reason and the way out."""

from collections.abc import Iterator

from turnout.coordinator.generators import is_rowwise
from turnout.coordinator.plan import Plan
from turnout.errors import ConfigError
from turnout.protocols import Population


def problems(plan: Plan) -> Iterator[str]:
    """Yield what is wrong with a plan, whatever the data."""
    for axis in ("filtering", "selection", "local", "aggregation", "server", "assist", "asynchrony", "attack"):
        rule = getattr(plan, axis)
        own = getattr(rule, "objections", None)
        if own is not None:
            yield from (f"{type(rule).__name__} on {axis}: {text}" for text in own(plan))
    work_objections = getattr(plan.fleet.work, "objections", None)
    if work_objections is not None:
        yield from work_objections(plan)
    membership = plan.fleet.membership
    if membership is not None and plan.turnover.reboots_fast and is_rowwise(plan.aggregation):
        yield (
            f"A fast reboot boosts coefficients, and {type(plan.aggregation).__name__} has none to boost. "
            'Set turnover.reboot = "vanilla", or aggregate with FedAvg, FedNova or a scheme.'
        )


def check(plan: Plan, population: Population) -> None:
    """Raise with everything that is wrong with a plan on these clients."""
    wrong = list(problems_with(plan, population))
    if wrong:
        raise ConfigError("\n".join(wrong))


def check_buffers(plan: Plan, has_buffers: bool) -> None:
    """Raise if a model has running statistics that a server that does not wait cannot average."""
    if plan.asynchrony is not None and has_buffers:
        raise ConfigError(
            f"{type(plan.asynchrony).__name__} cannot average running statistics, which return with updates of "
            "different ages; this model has some. Use one without, with GroupNorm in place of BatchNorm for example."
        )


def problems_with(plan: Plan, population: Population) -> Iterator[str]:
    """Yield what is wrong with a plan on these clients."""
    yield from problems(plan)
    fleet = plan.fleet
    rules = [getattr(plan, axis) for axis in ("filtering", "selection", "aggregation", "attack")]
    for rule in (*rules, fleet.availability, fleet.work, fleet.clock, fleet.membership):
        own = getattr(rule, "objections_for", None)
        if own is not None:
            yield from own(population)
    size = plan.selection.cohort_size
    if size is not None and size > population.num_clients and not getattr(plan.selection, "replacement", False):
        yield (
            f"{type(plan.selection).__name__} needs cohort_size <= the number of clients; "
            f"got {size} > {population.num_clients}. Set selection.cohort_size to {population.num_clients} or less."
        )
    if plan.assist is not None and population.server_size == 0:
        yield (
            f"{type(plan.assist).__name__} needs samples at the server; this federation has none. "
            "Set data.server_samples to 50 or more."
        )
    if population.holdout_sizes is not None:
        yield from holdout_problems(plan, bool(population.holdout_sizes.any()))


def holdout_problems(plan: Plan, has_holdout: bool) -> Iterator[str]:
    """Yield why clients cannot be measured, where none of them holds samples out."""
    every = plan.evaluate.clients_every
    if every > 0 and not has_holdout:
        yield (
            f"evaluate.clients_every = {every} measures every client on its own hold-out, and this federation has "
            "none. Set evaluate.clients_every to 0, or hold samples out: data.holdout = 0.1, or holdout=0.1 of "
            "from_clients, from_dataset and from_flwr."
        )
