"""Given: a list says which model each client trains.

Intuition: somebody knows of which kind every client is. No rule that has to find out can do better on average, so this
is what such rules are compared with.

    j_i = models[i]

Reduces to: the study without an assignment when every client has model 0 and there is one; separate studies, one for
each model, when the cohort is everyone.
Reference: none needed.
"""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
from torch import Tensor

from turnout.array_types import Ids
from turnout.assignment.assigned import Assigned
from turnout.errors import Problem
from turnout.protocols import Ask, Population, View
from turnout.settings import Range, rule

ModelIndex = Annotated[int, Range(least=0, most=9999)]


@rule("assignment")
class Given:
    """A list of the model of each client."""

    models: tuple[ModelIndex, ...]  # index of the model of each client, from 0 up, one for each client

    @property
    def num_models(self) -> int:
        """One more than the largest index."""
        return max(self.models, default=0) + 1

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the list does not suit the clients."""
        if len(self.models) != population.num_clients:
            yield Problem(
                f"Given needs one model index for each client; got {len(self.models)} for {population.num_clients} "
                "clients. Change assignment.models.",
                "assignment.models",
            )

    def assign(self, clients: Ids, models: Tensor, view: View, ask: Ask) -> Assigned:
        """Return the listed model of each client."""
        return Assigned(model_of=np.asarray(self.models, dtype=np.int64)[clients])
