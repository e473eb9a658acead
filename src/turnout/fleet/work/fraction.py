"""Fraction of work: every client completes a fixed share of the steps it is asked for.

Intuition: slow devices stop at the same point each round, or slightly before or after it.

    s_i = round(f_i · τ_i),   f_i fixed, or drawn uniformly from [f_i − w, f_i + w] ∩ [0, 1] each round

Reduces to: complete work when f = 1 and w = 0; clients that never return an update when f = 0.
Reference: none needed.
"""

from collections.abc import Iterator

import numpy as np

from turnout.array_types import Ids
from turnout.errors import Problem
from turnout.protocols import Population, View
from turnout.settings import Share, rule


@rule("fleet.work")
class Fraction:
    """A share of the asked steps."""

    fraction: Share | tuple[Share, ...] = 0.5  # completed share f of the steps, 0 to 1: one for all, or one per client
    spread: Share = 0.0  # half-width w of the uniform distribution around f, 0 to 1; 0 is the same share every round

    def population_problems(self, population: Population) -> Iterator[Problem]:
        """Yield why the list of fractions does not suit the number of clients."""
        if isinstance(self.fraction, tuple) and len(self.fraction) != population.num_clients:
            yield Problem(
                f"Fraction needs one fraction, or one per client; got {len(self.fraction)} for "
                f"{population.num_clients} clients. Change fleet.work.fraction.",
                "fleet.work.fraction",
            )

    def done(self, asked: Ids, clients: Ids, view: View) -> Ids:
        """Return this share of the asked steps, rounded to the nearest whole number, halves up."""
        total = view.population.num_clients
        middle = np.broadcast_to(np.asarray(self.fraction, dtype=np.float64), total)[clients]
        low, high = np.maximum(middle - self.spread, 0.0), np.minimum(middle + self.spread, 1.0)
        share = low + (high - low) * view.streams.uniforms("completed", view.round, clients)[:, 0]
        return np.floor(share * asked + 0.5).astype(np.int64)
