"""A filter by update norm: clients whose update is much larger than the median are left out.

Intuition: one diverging client should not dominate the average.

    keep i with ‖Δ_i‖ ≤ factor · median_j ‖Δ_j‖

Every available client trains once, and the round uses these updates.

Reduces to: no filter when factor is infinite.
Reference: none needed.
"""

from typing import Annotated, ClassVar

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import Ask, Kept, View
from turnout.requests import Steps, Trained
from turnout.settings import Range, rule


@rule("filtering")
class UpdateNorm:
    """Keep clients whose update norm is not much larger than the median."""

    needs_one_model: ClassVar[bool] = True
    # largest allowed ratio of an update norm to the median norm, 1 or more; 3 is usual, and infinity keeps every client
    factor: Annotated[float, Range(least=1)] = 3.0

    def keep(self, pool: Ids, view: View, ask: Ask) -> Steps[Kept]:
        """Train the pool and return the clients whose update norm is within the bound."""
        if len(pool) == 0:
            return Kept(clients=pool)
        trained: Trained = yield ask.train(pool)
        assert trained.delta is not None
        norms = trained.delta.double().norm(dim=1).cpu().numpy()
        is_finite = np.isfinite(norms)
        bound = self.factor * np.median(norms[is_finite]) if is_finite.any() else 0.0
        clients = trained.clients[is_finite & (norms <= bound)]
        return Kept(clients=clients, trained=trained, metrics={"filter_kept": float(len(clients))})
