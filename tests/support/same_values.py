"""Whether two values are the same, number by number."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch

from turnout.row_table import RowTable


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same, number by number."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    if isinstance(one, RowTable):
        everyone = np.arange(one.num_rows)
        return bool(np.array_equal(one.seen, other.seen)) and torch.equal(one.take(everyone), other.take(everyone))
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one)
        )
    if isinstance(one, dict):
        return set(one) == set(other) and all(same(value, other[name]) for name, value in one.items())
    return bool(one == other)
