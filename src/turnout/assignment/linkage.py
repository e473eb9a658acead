"""Agglomerative clustering: merge the two nearest groups until none are near enough."""

from typing import Literal

import numpy as np

from turnout.array_types import Floats

Linkage = Literal["complete", "average"]


def clusters(distances: Floats, bound: float, linkage: Linkage) -> list[list[int]]:
    """Return groups of indices, ascending, such that no two groups are within the bound of each other.

    The distance of two groups is the largest ("complete") or the mean ("average") distance between their members. The
    nearest two are merged first; of pairs that are equally near, the one with the smallest indices.
    """
    groups = [[index] for index in range(len(distances))]
    measure = np.max if linkage == "complete" else np.mean
    while len(groups) > 1:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a + 1, len(groups))]
        apart = [float(measure(distances[np.ix_(groups[a], groups[b])])) for a, b in pairs]
        nearest = int(np.argmin(apart))
        if not apart[nearest] <= bound:
            break
        a, b = pairs[nearest]
        groups[a] = sorted(groups[a] + groups.pop(b))
    return groups
