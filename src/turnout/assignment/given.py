"""Given: the study says which model each client trains, by client, by group or by lot.

Intuition: somebody knows of which kind every client is. No rule that has to find out can do better on average, so this
is what such rules are compared with. Lots are the opposite: what several models do if nothing is known.

    models   j_i = models[i]
    groups   j_i = the model whose list has the group of client i, such as its region
    shares   j_i = model j with probability shares[j] / Σ shares, drawn once per run

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
from turnout.errors import ConfigError, Problem
from turnout.protocols import Ask, Population, View
from turnout.settings import Positive, Range, rule

ModelIndex = Annotated[int, Range(least=0, most=9999)]
MOST_NAMED = 5  # groups that a message names


@rule("assignment")
class Given:
    """The model of each client by a list, by its group in the data, or by lot."""

    models: tuple[ModelIndex, ...] | None = None  # index of the model of each client, from 0 up, one for each client
    # instead of models: for each model, the groups of the data whose clients train it, such as [["north"], ["south"]]
    groups: tuple[tuple[str, ...], ...] | None = None
    # instead of models: for each model, the expected share of the clients that train it, above 0; they are normalised
    shares: tuple[Positive, ...] | None = None

    def __post_init__(self) -> None:
        settings = {"models": self.models, "groups": self.groups, "shares": self.shares}
        names = [name for name, value in settings.items() if value is not None]
        if len(names) != 1:
            raise ConfigError(
                f"Given needs one of models, groups and shares; got {' and '.join(names) or 'none'}. "
                "Set assignment.models, for example.",
                setting="assignment.models",
            )
        if self.groups is not None:
            listed = [group for groups in self.groups for group in groups]
            if twice := next((group for group in listed if listed.count(group) > 1), None):
                raise ConfigError(
                    f"Given needs each group at one model; {twice!r} is listed twice. Change assignment.groups.",
                    setting="assignment.groups",
                )

    @property
    def is_fixed(self) -> bool:
        """A client trains the same model in every round."""
        return True

    @property
    def num_models(self) -> int:
        """One more than the largest index, or the number of lists or shares."""
        if self.models is None:
            return max(len(self.groups or self.shares or ()), 1)
        return max(self.models, default=0) + 1

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the list or the groups do not suit the clients."""
        if self.models is not None and len(self.models) != population.num_clients:
            yield Problem(
                f"Given needs one model index for each client; got {len(self.models)} for {population.num_clients} "
                "clients. Change assignment.models.",
                "assignment.models",
            )
        if self.groups is None:
            return
        if population.groups is None:
            yield Problem(
                "Given with groups needs data whose clients have groups; this federation's have none. Pass groups= to "
                "from_clients or from_dataset, or set assignment.models.",
                "assignment.groups",
            )
            return
        known, listed = set(population.groups), {group for groups in self.groups for group in groups}
        for what, names in (("are in no list", known - listed), ("are not in the data", listed - known)):
            if names:
                shown = ", ".join(repr(name) for name in sorted(names)[:MOST_NAMED])
                yield Problem(
                    f"Given needs every group of the data in one list, and no other; these {what}: {shown}. "
                    "Change assignment.groups.",
                    "assignment.groups",
                )

    def assign(self, clients: Ids, models: Tensor, view: View, ask: Ask) -> Assigned:
        """Return the model of each client."""
        if self.shares is not None:
            ends = np.cumsum(self.shares) / np.sum(self.shares)
            lots = view.streams.uniforms("given model", 0, clients)[:, 0]
            return Assigned(model_of=np.searchsorted(ends[:-1], lots, side="right"))
        if self.groups is not None:
            model_of = {group: model for model, groups in enumerate(self.groups) for group in groups}
            names = view.population.groups or ()
            return Assigned(model_of=np.array([model_of[names[client]] for client in clients], dtype=np.int64))
        return Assigned(model_of=np.asarray(self.models, dtype=np.int64)[clients])
