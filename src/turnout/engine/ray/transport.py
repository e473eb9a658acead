"""Values on their way between processes: one text, and the large tensors beside it as numpy arrays.

Ray copies numpy arrays once into the memory that all processes of a node share, and reads them there without a copy.
"""

import io
import pickle
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LARGE_BYTES = 64 << 10  # tensors of at least so many bytes travel beside the text

Array = NDArray[Any]


class Packed(NamedTuple):
    """A value as a text; the text refers to large tensors by their place in the list."""

    text: bytes
    tensors: list[Tensor]


def packed(value: Any) -> Packed:
    """Return a value, ready to be sent."""
    file, tensors = io.BytesIO(), list[Tensor]()
    _pickler(file, tensors).dump(value)
    return Packed(file.getvalue(), tensors)


def unpacked(text: bytes, tensors: Sequence[Tensor]) -> Any:
    """Return the value of a text."""
    return _Unpickler(io.BytesIO(text), tensors).load()


def as_array(tensor: Tensor) -> Array:
    """Return a tensor as an array on the CPU, without a copy where it lies there."""
    return np.asarray(tensor.detach().cpu().numpy())


def as_tensor(array: Array) -> Tensor:
    """Return an array as a tensor without a copy. Memory of the object store is read-only: nobody may write to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def key_of(tensor: Tensor) -> tuple[object, ...]:
    """Return what tells a tensor from every other that lives at the same time."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _pickler(file: io.BytesIO, tensors: list[Tensor]) -> Any:
    """Return a pickler that knows functions and classes of the user's own script, too."""
    from ray import cloudpickle

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        def persistent_id(self, value: Any) -> int | None:
            if not _is_plain(value) or value.nbytes < LARGE_BYTES:
                return None
            tensors.append(value)
            return len(tensors) - 1

        def reducer_override(self, value: Any) -> Any:
            if _is_plain(value):
                return torch.from_numpy, (as_array(value),)
            return super().reducer_override(value)

    return Pickler(file, protocol=5)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: Sequence[Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, place: int) -> Tensor:
        return self.tensors[place]


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor that numpy can hold as it is."""
    if type(value) is not Tensor or value.requires_grad or value.layout is not torch.strided:
        return False
    return value.dtype not in (torch.bfloat16, torch.complex32) and not value.is_quantized and not value.is_conj()
