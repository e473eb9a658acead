"""What comes back from clients: facts, and rows of changes.

A row is one client's change Δ_i = x − x_i, descent-positive, as a flat vector. A client drawn twice has one row and a
multiplicity of two. Rows are in the order of client ids, whoever answered first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.array_types import Floats, Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of each answer besides the change itself; one entry per row."""

    clients: Ids  # ascending, each once
    weights: Floats  # p_i: the client's share of the objective
    num_examples: Ids  # n_i
    asked_steps: Ids  # what the client was asked to do
    local_steps: Ids  # τ_i: what it did
    local_work: Floats  # ‖a_i‖₁
    local_lr: Floats  # η_l
    multiplicity: Ids  # how often it was drawn
    inclusion_prob: Floats | None  # π_i where the selection rule knows it
    num_clients: int  # N: clients in the objective
    availability_prob: Floats | None = None  # q_i: how likely it was to be up, where the fleet knows it
    boost: Floats | None = None  # a factor on the coefficients of clients that have just arrived

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def num_draws(self) -> int:
        """|S|, counted with multiplicity."""
        return int(self.multiplicity.sum())

    def keep(self, mask: np.ndarray) -> "Facts":
        """Return the facts of the rows where mask is true."""
        if mask.all():
            return self
        names = ("clients", "weights", "num_examples", "asked_steps", "local_steps", "local_work", "local_lr")
        kept = {name: getattr(self, name)[mask] for name in (*names, "multiplicity")}
        optional = {name: getattr(self, name) for name in ("inclusion_prob", "availability_prob", "boost")}
        kept |= {name: values[mask] for name, values in optional.items() if values is not None}
        return replace(self, **kept)


@dataclass(frozen=True, slots=True)
class Rows:
    """Facts and the matrix of changes, one row per client and one column per parameter."""

    facts: Facts
    delta: Tensor
    extra: Tensor | None = None  # a second row per client, where the local solver sends one
    losses: Floats | None = None  # mean mini-batch loss of each client


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A descent-positive direction for the server, and what it was made of."""

    direction: Tensor  # u
    coefficients: Floats  # of each row; kept for the journal and the audit
    square_norms: Floats | None = None  # ‖Δ_i‖², where the server rule asked for them
    facts: Facts


def is_finite(values: Tensor) -> bool:
    """Whether there are only finite numbers here: by their sum, one pass, and one by one where that is not finite."""
    return math.isfinite(values.sum().item()) or bool(torch.isfinite(values).all())


def finite_rows(parts: Sequence[Tensor]) -> NDArray[np.bool_]:
    """Return whether each row is finite all over: by its sum, which is a product, and looked at where that is not."""
    total = parts[0].new_zeros(len(parts[0]))
    for part in parts:
        total += part @ part.new_ones(part.shape[1])
    finite: NDArray[np.bool_] = np.isfinite(total.double().cpu().numpy())
    for row in np.flatnonzero(~finite):  # sums of finite numbers can leave the range
        finite[row] = all(is_finite(part[row]) for part in parts)
    return finite
