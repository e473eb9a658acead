"""A filter by the size of the change: clients whose change is far larger than the others' are left out.

Intuition: one exploding client should not drag everyone along.

    keep i with ‖Δ_i‖ ≤ factor · median_j ‖Δ_j‖

Everyone who is up trains once, and the round uses those very rows.

Reduces to: no filter when factor is infinite.
Reference: none needed.
"""

from typing import Annotated

import numpy as np

from turnout.array_types import Ids
from turnout.protocols import Ask, Kept, View
from turnout.requests import Steps, Trained
from turnout.settings import Range, rule


@rule("filtering")
class UpdateNorm:
    """Keep clients whose change is not much larger than the median change."""

    factor: Annotated[float, Range(least=1)] = 3.0  # times the median change

    def keep(self, pool: Ids, view: View, ask: Ask) -> Steps[Kept]:
        """Train the pool and return those whose change is within bounds."""
        if len(pool) == 0:
            return Kept(clients=pool)
        trained: Trained = yield ask.train(pool)
        assert trained.delta is not None
        norms = trained.delta.double().norm(dim=1).cpu().numpy()
        fine = np.isfinite(norms)
        bound = self.factor * np.median(norms[fine]) if fine.any() else 0.0
        kept = trained.clients[fine & (norms <= bound)]
        return Kept(clients=kept, trained=trained, metrics={"filter_kept": float(len(kept))})
