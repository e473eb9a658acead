"""Compare a filter with the best of all subsets of a few clients, by brute force.

    best = max_{∅≠S} R(S),   R(S) = C₀ − F_V(x − mean_{i∈S} Δ_i)
    reward ratio  R(kept) / best         as in the paper; depends on C₀
    loss ratio    min_S F_V / F_V(kept)  independent of C₀, and stricter

Reference: Fourati, Kharrat, Aggarwal, Alouini, Canini. FilFL. ECAI 2024. arXiv:2302.06599 (Figure 11).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.errors import ConfigError

MOST_CLIENTS = 12  # 4,095 subsets

Losses = Callable[[Tensor], Floats]  # models, one row each -> the loss of each


@dataclass(frozen=True, slots=True)
class Best:
    """The best subset, and how a kept set compares with it."""

    members: Ids  # rows of the best subset
    loss: float
    kept_loss: float
    reward_ratio: float
    loss_ratio: float


def all_subsets(count: int) -> np.ndarray:
    """Return every non-empty subset of `count` rows, as a table of booleans."""
    numbers = np.arange(1, 1 << count)
    table: np.ndarray = (numbers[:, None] >> np.arange(count)) & 1 == 1
    return table


def best_subset(model: Tensor, deltas: Tensor, kept: Ids, losses: Losses, offset: float = 10.0) -> Best:
    """Return the best of all subsets of the rows, and the ratios of the set that was kept.

    Args:
        model: x.
        deltas: Δ_i, one row per client, at most twelve.
        kept: the rows that a filter kept; at least one.
        losses: F_V of each of several models.
        offset: C₀.
    """
    if not 1 <= len(deltas) <= MOST_CLIENTS or len(kept) == 0:
        raise ConfigError(
            f"Brute force needs 1 to {MOST_CLIENTS} clients and a set that keeps one; got {len(deltas)} clients and "
            f"{len(kept)} kept. Consider fewer clients: filtering.most = {MOST_CLIENTS}."
        )
    subsets = all_subsets(len(deltas))
    shares = torch.as_tensor(subsets / subsets.sum(1, keepdims=True), dtype=deltas.dtype, device=deltas.device)
    found = losses(model - shares @ deltas)
    is_kept = np.zeros(len(deltas), dtype=bool)
    is_kept[kept] = True
    mine = float(found[(subsets == is_kept).all(1)][0])
    first = int(np.argmin(found))
    low = float(found[first])
    return Best(
        members=np.flatnonzero(subsets[first]),
        loss=low,
        kept_loss=mine,
        reward_ratio=(offset - mine) / (offset - low),
        loss_ratio=low / mine if mine > 0 else 1.0,
    )
