"""Never available: some clients are never available; another rule decides for the rest.

Intuition: clients behind a firewall are part of the objective, but never train.

    A_t = A′_t − E            E: sampled once per run, listed, or all clients with certain most frequent labels

Reduces to: the availability it wraps when E is empty.
Reference: Zhang, Yang, Liu. Federated learning with server assistance (SA-FL), SAFARI.
"""

from collections.abc import Iterator
from dataclasses import field

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError, Problem
from turnout.fleet.availability.always import Always
from turnout.fleet.labels import dominant_labels, label_counts
from turnout.protocols import Availability, Population, View
from turnout.requirement import Requirement
from turnout.settings import ClientId, CountOrZero, rule
from turnout.traits import AvailabilityTraits, traits_of


@rule("fleet.availability")
class Never:
    """Some clients never take part."""

    # number of clients that are never available, 0 to the number of clients, sampled uniformly once per run
    count: ClientId | None = None
    clients: tuple[ClientId, ...] | None = None  # ids of the clients that are never available, instead of count
    # labels whose clients are never available, instead of count: a client belongs to its most frequent label
    labels: tuple[CountOrZero, ...] | None = None
    others: Availability = field(default_factory=Always)  # availability rule of all other clients

    def __post_init__(self) -> None:
        names = [name for name in ("count", "clients", "labels") if getattr(self, name) is not None]
        if len(names) != 1:
            raise ConfigError(
                f"Never needs one of count, clients and labels; got {' and '.join(names) or 'none'}. "
                "Set fleet.availability.count, for example.",
                setting="fleet.availability.count",
            )

    @property
    def needs_clock(self) -> bool:
        """Whether the rule `others` depends on simulated time."""
        return traits_of(AvailabilityTraits, self.others).needs_clock

    @property
    def requires(self) -> Requirement | None:
        """What clients require of the model by the rule `others`."""
        return traits_of(AvailabilityTraits, self.others).requires

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield which clients or labels do not exist, and what the rule `others` lacks."""
        total, counts = population.num_clients, population.label_counts
        if self.count is not None and self.count > total:
            yield Problem(
                f"Never needs count <= the number of clients; got {self.count} > {total}. "
                f"Set fleet.availability.count to {total} or less.",
                "fleet.availability.count",
            )
        for name, chosen, number in (
            ("clients", self.clients, total),
            ("labels", self.labels, None if counts is None else counts.shape[1]),
        ):
            wrong = [each for each in chosen or () if each < 0 or (number is not None and each >= number)]
            if wrong:
                yield Problem(
                    f"Never needs {name} in 0…{'' if number is None else number - 1}; got {wrong[0]}. "
                    f"Change fleet.availability.{name}.",
                    f"fleet.availability.{name}",
                )
        own = traits_of(AvailabilityTraits, self.others).population_problems
        yield from () if own is None else own(population)

    def up(self, view: View) -> Ids:
        """Return the clients that are available by the rule `others`, without E."""
        up, excluded = self.others.up(view), np.zeros(view.population.num_clients, dtype=bool)
        excluded[self.excluded(view)] = True
        return up[~excluded[up]]

    def excluded(self, view: View) -> Ids:
        """Return E, the same in every round."""
        if self.labels is not None:
            way_out = "Set fleet.availability.clients or count instead."
            counts = label_counts(view, "Never with labels", way_out)
            return np.flatnonzero(np.isin(dominant_labels(counts), self.labels))
        if self.clients is not None:
            return np.asarray(self.clients, dtype=np.int64)
        lots = view.streams.uniforms("never", 0, np.arange(view.population.num_clients))[:, 0]
        return np.argsort(lots, kind="stable")[: self.count]
