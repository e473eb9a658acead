"""Natural partition: each person, device or writer that samples came from is a client.

This is not a rule of the partition axis and has no settings. Loaders whose samples have client ids call it.
"""

import numpy as np
from numpy.typing import ArrayLike

from turnout.array_types import Ids


def by_id(ids: ArrayLike) -> list[Ids]:
    """Return the positions of each id's samples, in ascending order of id; the positions of an id ascend, too."""
    values = np.asarray(ids)
    if len(values) == 0:
        return []
    inverse, counts = np.unique(values, return_inverse=True, return_counts=True)[1:]
    order = np.argsort(inverse.reshape(-1), kind="stable")
    return np.split(order, np.cumsum(counts)[:-1])


def id_names(ids: ArrayLike) -> tuple[str, ...]:
    """Return the name of each client of `by_id`."""
    return tuple(str(value) for value in np.unique(np.asarray(ids)))
