"""Which clients are also among others: asked in every round, nearly always of two equal lists or an empty one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from turnout.array_types import Ids


def is_among(clients: Ids, others: Ids | Sequence[int]) -> Any:
    """Return, for each of these clients, whether it is one of the others; both in any order."""
    if len(others) == 0:
        return np.zeros(len(clients), dtype=bool)
    if others is clients or (len(others) == len(clients) and np.array_equal(clients, others)):
        return np.ones(len(clients), dtype=bool)
    return np.isin(clients, others)
