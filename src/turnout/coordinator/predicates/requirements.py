"""What does not go together where clients require something of the model."""

from collections.abc import Callable

from turnout.coordinator.plan import Plan
from turnout.coordinator.predicates.predicate import Predicate
from turnout.requirement import Requirement
from turnout.traits import Traits

NONE = Requirement(loss=0.0)  # of a rule that requires nothing


def trains_alone(plan: Plan) -> bool:
    """Whether clients train a model alone to know what they require."""
    rules = (plan.traits.aggregation, plan.traits.availability)
    return any((rule.requires or NONE).is_alone for rule in rules)


def _alone(axis: str, section: str, requires: Callable[[Traits], Requirement | None]) -> Predicate:
    """Return a predicate on plans in which clients train a model alone with the run's own local solver."""
    return Predicate(
        axis,
        f"{section}.lr",
        lambda plan, traits: traits.local.correction != "none" and (requires(traits) or NONE).uses_local_solver,
        'requirement = "alone" trains with {local}, whose correction = "{traits.local.correction}" divides updates by '
        f"the preconditioner, so that they do not lead to the client's own model. Set {section}.lr, with which clients "
        'train alone by plain SGD, or local.correction = "none".',
    )


REQUIREMENTS = (
    _alone("aggregation", "aggregation", lambda traits: traits.aggregation.requires),
    _alone("availability", "fleet.availability", lambda traits: traits.availability.requires),
)
