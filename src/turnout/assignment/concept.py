"""Concept: every client trains the model of its true concept.

Intuition: the oracle of data that drift. It knows which concept labels each client's samples in each time step, so what
a rule that must find out loses against it is the price of not knowing.

    j_i = the concept that labels client i's newest samples

A client trains on those of its samples so far that have the same concept.

Reduces to: one model, trained on all samples so far, when there is one concept.
Reference: Jothimurugesan, Hsieh, Wang, Joshi, Gibbons. AISTATS 2023. arXiv:2206.00799 (the oracle).
"""

from collections.abc import Iterator

from torch import Tensor

from turnout.array_types import Ids
from turnout.assignment.assigned import Assigned
from turnout.errors import Problem
from turnout.protocols import Ask, Population, View
from turnout.settings import Count, rule


@rule("assignment")
class Concept:
    """The model of the client's true concept."""

    num_models: Count  # number of models, the number of concepts of the data or more

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the data do not suit."""
        if population.drift is None:
            yield Problem(
                "Concept needs data with known concepts; this federation has none. Set data.use to concept-drift, or "
                "assignment.use to given, with a list.",
                "assignment.use",
            )
        elif population.drift.concepts.max() >= self.num_models:
            count = int(population.drift.concepts.max()) + 1
            yield Problem(
                f"Concept needs a model for each of the {count} concepts of the data; got num_models = "
                f"{self.num_models}. Set assignment.num_models to {count} or more.",
                "assignment.num_models",
            )

    def assign(self, clients: Ids, models: Tensor, view: View, ask: Ask) -> Assigned:
        """Return the concept of each client's newest samples, and the time steps that have it."""
        drift = view.population.drift
        now = drift.concepts[clients, drift.time_step(view.round)]
        blocks = (drift.concepts[clients] == now[:, None]) & drift.received(view.round, clients)
        return Assigned(model_of=now, blocks=blocks)
