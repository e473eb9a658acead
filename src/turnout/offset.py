"""What is subtracted from the gradients of each client: SCAFFOLD's c_i − c."""

from dataclasses import dataclass

import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.row_table import RowTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """Gradient offsets k_i = row_i − shared, formed where they are used: a cohort's would take as much as its rows."""

    shared: Tensor  # the same for all clients: SCAFFOLD's c
    table: RowTable  # one row per client: SCAFFOLD's c_i
    scale: Floats | None = None  # s_i; given: return the next rows k_i + s_i Δ_i, too
    weights: Floats | None = None  # p_i, given with the scale: and Σ p_i s_i Δ_i

    def columns(self, clients: Ids, start: int, out: Tensor) -> Tensor:
        """Write a part of these clients' k_i, from this column on, to `out`, and return it."""
        stop, view = start + out.shape[1], self.table.run_of(clients)
        own = self.table.columns(clients, start, out) if view is None else view[:, start:stop]
        return torch.sub(own, self.shared[start:stop], out=out)
