"""Cyclic availability: groups of clients are available in turn, in an order that repeats.

Intuition: phones charge at night, and night reaches one region of the earth after another.

    A_t = C_q,   q = σ((t − 1) mod K̄)            K̄ groups whose sizes differ by at most one

Reduces to: always available when K̄ = 1.
Differs from the paper: for the groups "labels", clients are sorted by their most frequent label and split into groups.
Clients are similar within a group and different across groups; "random" is the opposite.
Reference: Cho, Sharma, Joshi, Xu, Kale, Zhang. ICML 2023. arXiv:2302.03109.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError, Problem
from turnout.fleet.labels import dominant_labels, label_counts
from turnout.protocols import Population, View
from turnout.settings import Clients, CountOrZero, rule


def sorted_groups(ranked_by: Ids | Floats, groups: int) -> Ids:
    """Return each client's group after sorting by a value, ties by id, and splitting into equal parts."""
    order = np.argsort(ranked_by, kind="stable")
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.arange(len(order)) * groups // max(len(order), 1)
    return group


@rule("fleet.availability")
class Cyclic:
    """One group after another; every client is available once per cycle."""

    groups: Clients  # number of groups K̄, from 1 to the number of clients; 1 is always available
    # how clients are grouped: "random" at random, "labels" by most frequent label, "ids" by client id
    grouping: Literal["random", "labels", "ids"] = "random"
    # order σ of the groups: "ascending", "drawn" at random once per run, or a list of the groups 0 … K̄−1
    order: Literal["ascending", "drawn"] | tuple[CountOrZero, ...] = "ascending"

    def __post_init__(self) -> None:
        if not isinstance(self.order, str) and sorted(self.order) != list(range(self.groups)):
            raise ConfigError(
                f"Cyclic needs an order that names each group 0…{self.groups - 1} once; got {list(self.order)}. "
                "Change fleet.availability.order.",
                setting="fleet.availability.order",
            )

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why there are too few clients."""
        if self.groups > population.num_clients:
            yield Problem(
                f"Cyclic needs groups <= the number of clients; got {self.groups} > {population.num_clients}. "
                f"Set fleet.availability.groups to {population.num_clients} or less.",
                "fleet.availability.groups",
            )

    def up(self, view: View) -> Ids:
        """Return the group whose turn it is."""
        everyone = view.population.everyone
        if self.groups == 1:
            return everyone
        group = self.members(view)[everyone]
        return np.asarray(everyone[group == self._group_order(view)[(view.round - 1) % self.groups]])

    def members(self, view: View) -> Ids:
        """Return the group of every client, which is the same for the whole run."""
        if self.grouping == "labels":
            counts = label_counts(
                view, 'Cyclic with grouping = "labels"', 'Set fleet.availability.grouping to "random".'
            )
            return sorted_groups(dominant_labels(counts), self.groups)
        ids = np.arange(view.population.num_clients)
        ranks = view.streams.uniforms("groups", 0, ids)[:, 0] if self.grouping == "random" else ids
        return sorted_groups(ranks, self.groups)

    def _group_order(self, view: View) -> Ids:
        """Return σ."""
        if self.order == "ascending":
            return np.arange(self.groups)
        if self.order == "drawn":
            return view.streams.generator("group order").permutation(self.groups)
        return np.asarray(self.order)
