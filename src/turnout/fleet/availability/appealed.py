"""Appealed: a client is available only while the model serves it, that is while it beats what the client requires.

Intuition: nobody contributes for long to a model that is worse for them than the one they could train alone.

    c_k = rounds in a row, up to this one, with F_k(x) ≥ ρ_k
    A_t = { k in A′_t : t ≤ w,  or min(c_k, t − w) ≤ patience,  or u_k < loyal }          u_k ~ U(0, 1), once per run

F_k(x) is the loss of the round's model on the training samples of client k, measured before the round, and ρ_k the
loss that the client requires: given, or that of a model that the client trained alone, from the run's first model, on
the same samples. A client that left returns as soon as the model serves it. A′_t is who is available by another rule,
which is everybody by default. The journal has the share of members that the model serves, as `appeal`, in every round;
with loyal = 1 the rule only measures it. What clients measure and train for their decision is on the round's bill.

Reduces to: the availability it wraps when loyal = 1, when w is the number of rounds, and when patience is.
Differs from the paper: the paper keeps clients for a number of rounds and then lets those leave that the model does
not serve; here they may also return, and `patience` and `loyal` soften the decision.
Reference: Cho, Jhunjhunwala, Li, Smith, Joshi. Maximizing global model appeal in federated learning. TMLR 2024.
arXiv:2205.14840.
"""

from collections.abc import Iterator
from dataclasses import field
from typing import Annotated, Literal

import numpy as np

from turnout.array_types import Ids
from turnout.errors import Problem
from turnout.fleet.availability.always import Always
from turnout.protocols import Availability, Population, View
from turnout.requirement import Requirement
from turnout.settings import Count, CountOrZero, Number, Positive, Share, When, rule
from turnout.traits import AvailabilityTraits, traits_of


def rounds_waited(unserved_rounds: Ids, round: int, warmup_rounds: int) -> Ids:
    """Return for how many rounds in a row after the warm-up the model has not served each client."""
    return np.minimum(unserved_rounds, max(round - warmup_rounds, 0))


@rule("fleet.availability")
class Appealed:
    """Available while the model serves the client."""

    # loss ρ_k on its training samples below which the model serves a client: "alone" is the loss of a model that the
    # client trains alone, which is usual; or a number for all clients, or a list with one per client
    requirement: Literal["alone"] | Number | tuple[Number, ...] = "alone"
    # number of epochs for which a client trains alone, 1 or more; 5 to 100 is usual
    epochs: Annotated[Count, When(requirement="alone")] = 5
    # learning rate of the plain SGD with which a client trains alone, above 0; none uses the study's own local solver
    lr: Annotated[Positive | None, When(requirement="alone")] = None
    # number w of rounds at the start in which nobody leaves, 0 or more; usually a tenth of all rounds, since hardly any
    # client is served by a model that is not trained yet
    warmup_rounds: CountOrZero = 10
    # number of rounds in a row for which a client stays although the model does not serve it, 0 or more; with 0,
    # which is usual, it leaves at once
    patience: CountOrZero = 0
    loyal: Share = 0.0  # probability that a client stays regardless of the model, drawn once per run, 0 to 1; usually 0
    others: Availability = field(default_factory=Always)  # availability rule of the clients that stay

    @property
    def requires(self) -> Requirement:
        """What clients require of the model."""
        return Requirement.of(self.requirement, self.epochs, self.lr)

    @property
    def needs_clock(self) -> bool:
        """Whether the rule `others` depends on simulated time."""
        return traits_of(AvailabilityTraits, self.others).needs_clock

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the list of losses does not suit the clients, and what the rule `others` lacks."""
        yield from self.requires.problems("Appealed", "fleet.availability", population)
        others = traits_of(AvailabilityTraits, self.others)
        if others.requires is not None:
            yield Problem(
                "Appealed needs a rule for others that does not depend on the model, too: a client has one "
                "requirement. Change fleet.availability.others, to bernoulli for example.",
                "fleet.availability.others",
            )
        yield from () if others.population_problems is None else others.population_problems(population)

    def up(self, view: View) -> Ids:
        """Return the clients that are available by the rule `others` and stay; all of them if no model was measured."""
        up = self.others.up(view)
        if view.appeal is None:
            return up
        waited = rounds_waited(view.appeal.unserved_rounds[up], view.round, self.warmup_rounds)
        is_loyal = view.streams.uniforms("loyal", 0, up)[:, 0] < self.loyal
        return up[(waited <= self.patience) | is_loyal]
