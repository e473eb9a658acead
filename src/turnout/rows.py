"""The updates of a round: facts about each update, and the matrix of updates.

A row is one client's update Δ_i = x − x_i as a flat vector, so that a step subtracts it. A client that was selected
twice has one row and a multiplicity of two. Rows are in ascending order of client id, not of arrival.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.submodels import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about each update besides its values; one entry per row."""

    clients: Ids  # ascending, each once
    weights: Floats  # weight p_i of the client in the objective
    num_examples: Ids  # number of training samples n_i
    asked_steps: Ids  # number of local steps that the order asked for
    local_steps: Ids  # number of local steps τ_i that the client did
    local_work: Floats  # local work ‖a_i‖₁
    local_lr: Floats  # local learning rate η_l
    multiplicity: Ids  # number of times that the client was selected
    inclusion_prob: Floats | None  # probability π_i of selection; None if the selection rule does not know it
    num_clients: int  # number of clients N in the objective
    availability_prob: Floats | None = None  # probability q_i of availability; None if the fleet does not know it
    boost: Floats | None = None  # factor on the coefficients of newly arrived clients; None is 1

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def num_draws(self) -> int:
        """Number of selections |S|, with multiplicity."""
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
    """Facts and the matrix of updates, one row per client and one column per parameter."""

    facts: Facts
    delta: Tensor  # update Δ_i of each client
    extra: Tensor | None = None  # second row of each client, if the local solver returns one
    losses: Floats | None = None  # mean mini-batch loss of each client
    parts: Parts | None = None  # the part of the model that each client trained; None: all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The aggregated update, which the server optimiser subtracts, and the rows that it is made of."""

    direction: Tensor  # aggregated update u
    coefficients: Floats  # coefficient of each row in u, for the journal and the audit
    square_norms: Floats | None = None  # squared norm ‖Δ_i‖² of each row, if the server rule needs them
    facts: Facts  # facts about each row


def is_finite(values: Tensor) -> bool:
    """Whether all values are finite: tests their sum first, and each value only if the sum is not finite."""
    return math.isfinite(values.sum().item()) or bool(torch.isfinite(values).all())


def finite_rows(parts: Sequence[Tensor]) -> NDArray[np.bool_]:
    """Return whether all values of each row are finite: tests row sums first, computed as matrix products."""
    total = parts[0].new_zeros(len(parts[0]))
    for part in parts:
        total += part @ part.new_ones(part.shape[1])
    finite: NDArray[np.bool_] = np.isfinite(total.double().cpu().numpy())
    for row in np.flatnonzero(~finite):  # a sum of finite values can overflow
        finite[row] = all(is_finite(part[row]) for part in parts)
    return finite


def as_tensor(values: Floats, like: Tensor) -> Tensor:
    """Return numbers as a tensor of the same kind and place as another."""
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)
