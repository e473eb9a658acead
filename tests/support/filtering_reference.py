"""FilFL as its paper writes it, with sets: every average is made anew, and every value is asked for again."""

import numpy as np
import torch


def filtered(deltas, order, loss, coins, *, mode="deterministic", offset=10.0):
    """Return who is kept, having checked at every step that X is a part of Y."""

    def reward(members):  # R(∅) = 0, as in the authors' code
        return offset - loss(-deltas[torch.tensor(sorted(members))].mean(0)) if members else 0.0

    inside, outside = set(), set(order)
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
