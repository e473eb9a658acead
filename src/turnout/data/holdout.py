"""Hold-outs: a random fraction of each client's samples is its own test set."""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.errors import DataError
from turnout.streams import GAMMA, Streams, mix


def train_sizes(sizes: Ids, holdout: float) -> Ids:
    """Return the number of training samples of each client: ⌊(1 − holdout)·n_i⌋, at least one."""
    whole = np.floor((1.0 - holdout) * sizes + 1e-9).astype(np.int64)
    training: Ids = np.minimum(sizes, np.maximum(whole, 1))
    return training


def drawn_for_holdout(sizes: Ids, counts: Ids, streams: Streams) -> NDArray[np.bool_]:
    """Return a mask of the hold-out samples: `counts` of each client, drawn with the client's own key.

    The mask covers the samples of all clients, one client after another.
    """
    if not counts.any():
        return np.zeros(int(sizes.sum()), dtype=bool)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    within = (np.arange(len(owner)) - starts).astype(np.uint64)
    keys = streams.keys("holdout", clients=np.arange(len(sizes)))[owner]
    order = np.lexsort((mix(keys + (within + np.uint64(1)) * GAMMA), owner))
    is_held_out = np.zeros(len(owner), dtype=bool)
    is_held_out[order] = np.arange(len(owner)) - starts < counts[owner]
    return is_held_out


def check_share(holdout: float) -> None:
    """Raise if the hold-out fraction is not in [0, 1)."""
    if not 0.0 <= holdout < 1.0:
        raise DataError(f"holdout must lie in [0, 1); got {holdout}. Set data.holdout to a fraction such as 0.1.")
