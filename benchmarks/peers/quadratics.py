"""A federation that every library can be given alike, and whose clients leave nothing to chance.

Client i holds n_i copies of one sample that says F_i(x) = ½ h_i‖x‖² − e_iᵀx; who is asked in each round is fixed.
Only numpy is imported here: peers read it too.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

LOCAL_LR = 0.1
LOCAL_STEPS = 3  # with full batches; with batches of one sample, passes over the n_i copies
SERVER_LR = 0.3
BETA1, BETA2 = 0.8, 0.95
ADAPTIVITY = 1e-3
TINY_ADAPTIVITY = 1e-14  # where it stands in the formula no longer matters
MOMENTUM = 0.7
FEDEXP_EPS = 1e-4  # fluke's, which is not a setting there
TRIMMED = 0.2
ATTACKERS, KEPT = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Quadratics:
    """The clients, the first model, and who is asked in each round."""

    curvatures: Floats  # h_i
    linear: Floats  # e_i, one row each
    sizes: Ids  # n_i
    start: Floats
    cohorts: Ids  # one row a round, ascending

    @classmethod
    def drawn(cls, *, clients: int = 8, dim: int = 20, rounds: int = 8, cohort_size: int = 6) -> "Quadratics":
        """Return clients with different optima, curvatures and sizes."""
        rng = np.random.default_rng(7)
        asked = [np.sort(rng.choice(clients, cohort_size, replace=False)) for _ in range(rounds)]
        return cls(
            curvatures=rng.uniform(0.5, 3.0, clients),
            linear=rng.normal(size=(clients, dim)),
            sizes=rng.integers(1, 6, clients),
            start=rng.normal(size=dim),
            cohorts=np.array(asked),
        )

    @classmethod
    def load(cls, path: Path) -> "Quadratics":
        """Read what `save` wrote."""
        with np.load(path) as held:
            return cls(**dict(held))

    def save(self, path: Path) -> None:
        """Write everything to an .npz file."""
        np.savez(path, **asdict(self))

    def local_model(self, model: Floats, client: int) -> Floats:
        """Return the client's model after its full-gradient steps."""
        local = model.copy()
        for _ in range(LOCAL_STEPS):
            local -= LOCAL_LR * (self.curvatures[client] * local - self.linear[client])
        return local

    def targets(self, client: int) -> Floats:
        """Return the client's samples as rows of (h_i, e_i)."""
        row = np.concatenate([self.curvatures[client : client + 1], self.linear[client]])
        return np.tile(row, (int(self.sizes[client]), 1))
