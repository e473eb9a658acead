"""Never up: some clients are left out for ever, whoever else is up.

Intuition: clients behind a firewall, whose data the model will only ever meet in the objective.

    A_t = A′_t − E            E: drawn once per run, named, or all who hold mostly certain labels

Reduces to: the availability it wraps when E is empty.
Reference: Zhang, Yang, Liu. Federated learning with server assistance (SA-FL), SAFARI.
"""

from collections.abc import Iterator
from dataclasses import field

import numpy as np

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.fleet.availability.always import Always
from turnout.fleet.labels import dominant_labels, label_counts
from turnout.protocols import Availability, Population, View
from turnout.settings import ClientId, CountOrZero, rule


@rule("fleet.availability")
class Never:
    """Some clients never take part."""

    count: ClientId | None = None  # s: so many clients, drawn evenly once per run
    clients: tuple[ClientId, ...] | None = None  # or these clients
    labels: tuple[CountOrZero, ...] | None = None  # or all clients that hold one of these labels most
    others: Availability = field(default_factory=Always)  # when the rest are up

    def __post_init__(self) -> None:
        given = {n: v for n in ("count", "clients", "labels") if (v := getattr(self, n)) is not None}
        if len(given) != 1:
            raise ConfigError(
                f"Never needs one of count, clients and labels; got {' and '.join(given) or 'none'}. "
                "Set fleet.availability.count, for example."
            )

    @property
    def needs_clock(self) -> bool:
        """Whether the rule it wraps looks at simulated time."""
        return bool(getattr(self.others, "needs_clock", False))

    def objections_for(self, population: Population) -> Iterator[str]:
        """Yield whom it cannot exclude, and what the rule it wraps objects to."""
        total, counts = population.num_clients, population.label_counts
        if self.count is not None and self.count > total:
            yield (
                f"Never needs count <= the number of clients; got {self.count} > {total}. "
                f"Set fleet.availability.count to {total} or less."
            )
        for name, chosen, number in (
            ("clients", self.clients, total),
            ("labels", self.labels, None if counts is None else counts.shape[1]),
        ):
            wrong = [each for each in chosen or () if each < 0 or (number is not None and each >= number)]
            if wrong:
                yield (
                    f"Never needs {name} in 0…{'' if number is None else number - 1}; got {wrong[0]}. "
                    f"Change fleet.availability.{name}."
                )
        own = getattr(self.others, "objections_for", None)
        yield from () if own is None else own(population)

    def up(self, view: View) -> Ids:
        """Return those that the wrapped rule has up, without the excluded."""
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
