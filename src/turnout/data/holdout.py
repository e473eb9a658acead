"""Which of a client's samples are held out for its own test: a share of each client's, drawn by key."""

import numpy as np
from numpy.typing import NDArray

from turnout.array_types import Ids
from turnout.streams import GAMMA, Streams, mix


def train_sizes(sizes: Ids, holdout: float) -> Ids:
    """Return how many of each client's samples train: ⌊(1 − holdout)·n⌋, and at least one."""
    whole = np.floor((1.0 - holdout) * sizes + 1e-9).astype(np.int64)
    kept: Ids = np.minimum(sizes, np.maximum(whole, 1))
    return kept


def drawn_for_holdout(sizes: Ids, counts: Ids, streams: Streams) -> NDArray[np.bool_]:
    """Return which pooled samples are held out: `counts` of each client, drawn with its own key."""
    if not counts.any():
        return np.zeros(int(sizes.sum()), dtype=bool)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    within = (np.arange(len(owner)) - starts).astype(np.uint64)
    keys = streams.keys("holdout", clients=np.arange(len(sizes)))[owner]
    order = np.lexsort((mix(keys + (within + np.uint64(1)) * GAMMA), owner))
    held_out = np.zeros(len(owner), dtype=bool)
    held_out[order] = np.arange(len(owner)) - starts < counts[owner]
    return held_out
