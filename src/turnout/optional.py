"""What a rule may offer beyond its axis's protocol. Each is optional: a rule that has the method has the ability.

A protocol's own isinstance is too slow for every round, so each ability is found by its one method.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeGuard

from turnout.array_types import Floats, Ids
from turnout.protocols import Clock, Memory, Selection, View, Work


class Observer(Protocol):
    """A local rule that adapts to how training goes."""

    def observe(self, memory: Mapping[str, Any], view: View, loss: float) -> Memory:
        """Return the rule's new memory after a round whose mean training loss was this."""
        ...


class KnownAvailability(Protocol):
    """An availability by chance, whose probabilities are known."""

    def probability(self, clients: Ids, view: View) -> Floats:
        """Return how likely each of these clients is to be up in this round, before anyone has looked."""
        ...


class KnownInclusion(Selection, Protocol):
    """A selection that says whether it knows how likely each client was to be asked."""

    @property
    def knows_inclusion_prob(self) -> bool:
        """Whether every choice comes with its inclusion probabilities π_i."""
        ...


class CountedWork(Work, Protocol):
    """A work rule that says what it counts: a rule that counts epochs is told how many epochs are asked."""

    @property
    def unit(self) -> Literal["steps", "epochs"]:
        """What `done` is given and returns."""
        ...


class LimitedAnswers(Clock, Protocol):
    """A clock that may close a round before all answers are in."""

    @property
    def displaces(self) -> bool:
        """Whether one client's answer can keep another's out of the round."""
        ...


class StepsWithoutAnswers(Protocol):
    """An aggregation that may step in a round in which no client answered."""

    def steps_without_answers(self, anyone_up: bool) -> bool:
        """Return whether it steps in such a round; `anyone_up` says whether there was anybody to ask."""
        ...


def knows_probability(rule: object) -> TypeGuard[KnownAvailability]:
    """Return whether an availability rule knows how likely each client is to be up."""
    return hasattr(rule, "probability")


def may_know_inclusion_prob(rule: object) -> bool:
    """Return whether a selection knows inclusion probabilities; one that does not say may."""
    return bool(getattr(rule, "knows_inclusion_prob", True))


def counts_work(rule: object) -> TypeGuard[CountedWork]:
    """Return whether a work rule says what it counts; any other counts steps."""
    return hasattr(rule, "unit")


def limits_answers(clock: object) -> TypeGuard[LimitedAnswers]:
    """Return whether a clock says if answers can displace each other."""
    return hasattr(clock, "displaces")


def is_observer(rule: object) -> TypeGuard[Observer]:
    """Return whether a local rule adapts to how training goes."""
    return hasattr(rule, "observe")


def may_step_without_answers(rule: object) -> TypeGuard[StepsWithoutAnswers]:
    """Return whether an aggregation decides for itself what a round without answers does."""
    return hasattr(rule, "steps_without_answers")
