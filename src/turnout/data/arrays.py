"""Conversion of a user's arrays to tensors: accepts lists, numpy arrays and tensors, and raises DataError otherwise."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.errors import DataError

NUMBERS = "biuf"  # numpy's kind codes of booleans, integers and floats


def as_inputs(values: Any, what: str) -> Tensor:
    """Return inputs as a tensor; floats that are not in a tensor already become float32."""
    return _tensor(values, what)


def as_targets(values: Any, what: str) -> Tensor:
    """Return targets as a tensor; integer labels become int64, as PyTorch's losses require.

    A column of labels, an integer array of shape (n, 1), becomes one label per sample. Floats keep their shape: they
    are the targets of a regression.
    """
    targets = _tensor(values, what)
    if targets.is_floating_point():
        return targets
    return (targets.squeeze(1) if targets.dim() == 2 and targets.shape[1] == 1 else targets).long()


def as_names(values: Sequence[object] | None, what: str) -> tuple[str, ...] | None:
    """Return one string per client; None stays None."""
    if values is None:
        return None
    if isinstance(values, str) or not hasattr(values, "__len__"):
        raise DataError(f"{what} must be a list with one entry per client; got {values!r:.60}. Pass a list.")
    return tuple(str(value) for value in values)


def _tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        tensor = values.detach()
    else:
        try:
            array = np.asarray(values)
        except (ValueError, TypeError, RuntimeError):  # numpy and torch raise these for ragged entries
            raise DataError(
                f"{what} must have one shape for every sample; got entries that differ in length. "
                "Pad or cut them to one length."
            ) from None
        if array.dtype.kind not in NUMBERS:
            raise DataError(
                f"{what} must be numbers; got {_type_name(array)}. "
                "Number the labels from 0, and turn other texts into numbers, before building the federation."
            )
        tensor = torch.from_numpy(_torch_compatible(array)).reshape(
            array.shape
        )  # ascontiguousarray makes a scalar one-dimensional
    if tensor.dim() == 0:
        raise DataError(f"{what} must hold one entry per sample; got a single number. Pass a list or an array.")
    return tensor


def _torch_compatible(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a writable, contiguous array of a type that torch has; copy only if needed."""
    if array.dtype.kind == "f" and array.dtype != np.float32:
        array = array.astype(np.float32)
    elif array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return array if array.flags.writeable else array.copy()


def _type_name(array: np.ndarray[Any, Any]) -> str:
    first = array.reshape(-1)[:1].tolist()
    return "text" if first and isinstance(first[0], str | bytes) else f"entries of kind {array.dtype}"
