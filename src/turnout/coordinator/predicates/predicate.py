"""A predicate: a combination of rules that does not make sense, and its message."""

from collections.abc import Callable
from dataclasses import dataclass

from turnout.coordinator.plan import Plan
from turnout.traits import Traits

SAMPLING = {"none": ("fixed", "poisson"), "fixed": ("fixed",), "poisson": ("poisson",)}  # draws that privacy allows
DRAWN_BY = {"fixed": "uniform", "poisson": "poisson"}  # the selection rule that draws so
Condition = Callable[[Plan, Traits], bool]


@dataclass(frozen=True, slots=True)
class Predicate:
    """A combination that does not make sense; the rule of one axis has a need that the others do not meet."""

    axis: str
    setting: str  # the one to change
    is_wrong: Condition
    text: str  # may name the rules by axis, as {server}, and what is in the plan and its traits

    def message(self, plan: Plan) -> str:
        """Return what is wrong with a plan."""
        rules = {axis: called(rule) for axis, rule in plan.rules().items()}
        draws = " or ".join(DRAWN_BY[draw] for draw in allowed_draws(plan.traits))
        text = self.text.format(plan=plan, traits=plan.traits, draws=draws, **rules)
        return f"{rules[self.axis]} on {self.axis}: {text}"


def called(rule: object) -> str:
    """Return the name of a rule's class, for messages."""
    return type(rule).__name__


def allowed_draws(traits: Traits) -> tuple[str, ...]:
    """Return how clients may be drawn, by what a guarantee of privacy assumes."""
    privacy = traits.aggregation.privacy
    return tuple(DRAWN_BY) if privacy is None else SAMPLING[privacy.sampling]


def where(axis: str, applies: Condition) -> Callable[[str, Condition, str], Predicate]:
    """Return a function that makes predicates of one axis, on plans to which a condition applies.

    It takes the setting to change, what is wrong, and the text.
    """

    def made(setting: str, is_wrong: Condition, text: str) -> Predicate:
        return Predicate(axis, setting, lambda plan, traits: applies(plan, traits) and is_wrong(plan, traits), text)

    return made
