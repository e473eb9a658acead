"""Arrays that users pass, as tensors: lists, numpy arrays and tensors are read; anything else is one message."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turnout.errors import DataError

NUMBERS = "biuf"  # numpy's kinds of bool, whole and real numbers


def as_inputs(values: Any, what: str) -> Tensor:
    """Return inputs as a tensor; real numbers that are not in a tensor become 32-bit floats."""
    return _tensor(values, what)


def as_targets(values: Any, what: str) -> Tensor:
    """Return targets as a tensor; labels of any width become 64-bit integers, which PyTorch's losses need."""
    targets = _tensor(values, what)
    return targets if targets.is_floating_point() else targets.long()


def as_names(values: Sequence[object] | None, what: str) -> tuple[str, ...] | None:
    """Return one text per client; None stays None."""
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
        except (ValueError, TypeError, RuntimeError):  # numpy's and torch's own words for entries that do not fit
            raise DataError(
                f"{what} must have one shape for every sample; got entries that differ in length. "
                "Pad or cut them to one length."
            ) from None
        if array.dtype.kind not in NUMBERS:
            raise DataError(
                f"{what} must be numbers; got {_entries(array)}. "
                "Number the labels from 0, and turn other texts into numbers, before building the federation."
            )
        tensor = torch.from_numpy(_plain(array)).reshape(array.shape)  # numpy makes a list of a single number
    if tensor.dim() == 0:
        raise DataError(f"{what} must hold one entry per sample; got a single number. Pass a list or an array.")
    return tensor


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of a kind that torch has, writable and in order, without a copy where it is so already."""
    if array.dtype.kind == "f" and array.dtype != np.float32:
        array = array.astype(np.float32)
    elif array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    return array if array.flags.writeable else array.copy()


def _entries(array: np.ndarray[Any, Any]) -> str:
    first = array.reshape(-1)[:1].tolist()
    return "text" if first and isinstance(first[0], str | bytes) else f"entries of kind {array.dtype}"
