"""FilFL as its paper writes it, with sets: every average is made anew, and every value is asked for again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids


def filtered(
    deltas: Tensor,
    order: list[int],
    loss: Callable[..., Any],
    coins: Floats,
    *,
    mode: str = "deterministic",
    offset: float = 10.0,
) -> Ids:
    """Return who is kept, having checked at every step that X is a part of Y."""

    def reward(members: set[int]) -> float:  # R(∅) = 0, as in the authors' code
        return offset - loss(-deltas[torch.tensor(sorted(members))].mean(0)) if members else 0.0

    inside: set[int] = set()
    outside = set(order)
    for client, coin in zip(order, coins, strict=True):
        a = reward(inside | {client}) - reward(inside)
        b = reward(outside - {client}) - reward(outside)
        if mode == "deterministic":
            accepted = a > b
        else:
            joins, leaves = max(a, 0.0), max(b, 0.0)
            accepted = coin < (joins / (joins + leaves) if joins + leaves else 1.0)
        inside, outside = (inside | {client}, outside) if accepted else (inside, outside - {client})
        assert inside <= outside
    assert inside == outside
    return np.array(sorted(inside), dtype=np.int64)
