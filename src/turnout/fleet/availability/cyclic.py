"""Cyclic availability: clients come group by group, in an order that repeats.

Intuition: as the night moves round the earth, one part of the world after another plugs in its phones.

    A_t = C_q,   q = σ((t − 1) mod K̄)            K̄ groups of equal size, as near as may be

Reduces to: always up when K̄ = 1.
Differs from the paper: groups "labels" are clients sorted by the label they hold most of, then cut: alike within a
group, unlike across groups. "random" is the opposite.
Reference: Cho, Sharma, Joshi, Xu, Kale, Zhang. ICML 2023. arXiv:2302.03109.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError
from turnout.fleet.labels import dominant_labels, label_counts
from turnout.protocols import Population, View
from turnout.settings import Clients, CountOrZero, rule


def cut(ranked_by: Ids | Floats, groups: int) -> Ids:
    """Return each client's group when they are sorted by a value, ties by id, and cut into equal parts."""
    order = np.argsort(ranked_by, kind="stable")
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.arange(len(order)) * groups // max(len(order), 1)
    return group


@rule("fleet.availability")
class Cyclic:
    """One group after another; every client is offered once per cycle."""

    groups: Clients  # K̄
    grouping: Literal["random", "labels", "ids"] = "random"  # who is in a group together
    order: Literal["ascending", "drawn"] | tuple[CountOrZero, ...] = "ascending"  # σ: by group, drawn once, or given

    def __post_init__(self) -> None:
        if not isinstance(self.order, str) and sorted(self.order) != list(range(self.groups)):
            raise ConfigError(
                f"Cyclic needs an order that names each group 0…{self.groups - 1} once; got {list(self.order)}. "
                "Change fleet.availability.order."
            )

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield why there are too few clients."""
        if self.groups > population.num_clients:
            yield (
                f"Cyclic needs groups <= the number of clients; got {self.groups} > {population.num_clients}. "
                f"Set fleet.availability.groups to {population.num_clients} or less."
            )

    def up(self, view: View) -> Ids:
        """Return the group whose turn it is."""
        everyone = view.population.everyone
        if self.groups == 1:
            return everyone
        group = self.members(view)[everyone]
        return np.asarray(everyone[group == self._sigma(view)[(view.round - 1) % self.groups]])

    def members(self, view: View) -> Ids:
        """Return the group of every client; it stays the same for the whole run."""
        if self.grouping == "labels":
            counts = label_counts(
                view, 'Cyclic with grouping = "labels"', 'Set fleet.availability.grouping to "random".'
            )
            return cut(dominant_labels(counts), self.groups)
        ids = np.arange(view.population.num_clients)
        return cut(view.streams.uniforms("groups", 0, ids)[:, 0] if self.grouping == "random" else ids, self.groups)

    def _sigma(self, view: View) -> Ids:
        if self.order == "ascending":
            return np.arange(self.groups)
        if self.order == "drawn":
            return view.streams.generator("group order").permutation(self.groups)
        return np.asarray(self.order)
