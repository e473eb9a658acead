"""A parcel: the content of one message between server and device, and how it is read without trusting the sender.

On the wire a parcel is a kind, a JSON text with plain values, and arrays as raw bytes with a type and a shape. An array
is accepted only if it has exactly as many bytes as its shape needs, so no header can ask for memory that was not sent.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DTYPES = ("float32", "float64", "int64")
MOST_ARRAYS = 8
MOST_TEXT = 1 << 20  # characters of the plain values
MOST_WHOLE = 2**62


class BadParcelError(ValueError):
    """A parcel does not have what its kind needs; the message says what."""


class Wire(NamedTuple):
    """One array as it is sent."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Parcel:
    """The content of one message."""

    kind: str  # hello, train, probe, score, evaluate, recall; of a device: the same, or refused
    values: Mapping[str, Any] = field(default_factory=dict)  # plain values, by name
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def text(self) -> str:
        """Return the plain values as they are sent."""
        return json.dumps(dict(self.values))

    def wires(self) -> dict[str, Wire]:
        """Return the arrays as they are sent."""
        return {
            name: Wire(str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes())
            for name, array in self.arrays.items()
        }

    @classmethod
    def received(cls, kind: str, text: str, wires: Mapping[str, Wire]) -> "Parcel":
        """Return the parcel of what came; raise BadParcelError if it is none."""
        if len(text) > MOST_TEXT or len(wires) > MOST_ARRAYS:
            raise BadParcelError(f"the message has {len(text)} characters and {len(wires)} arrays")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise BadParcelError("the message's values are not JSON") from None
        if not isinstance(values, dict):
            raise BadParcelError("the message's values are not a table")
        return cls(kind, values, {name: _array(name, wire) for name, wire in wires.items()})

    def whole(self, name: str) -> int:
        """Return a whole number."""
        value = self.values.get(name)
        if type(value) is not int or abs(value) > MOST_WHOLE:
            raise BadParcelError(f"{name} is no whole number")
        return value

    def number(self, name: str) -> float:
        """Return a number, which may not be finite."""
        value = self.values.get(name)
        if type(value) is int and abs(value) <= MOST_WHOLE:
            return float(value)
        if type(value) is not float:
            raise BadParcelError(f"{name} is no number")
        return value

    def seconds(self, name: str) -> float:
        """Return a time span."""
        value = self.number(name)
        if not 0 <= value <= MOST_WHOLE:
            raise BadParcelError(f"{name} is no time span")
        return value

    def flag(self, name: str) -> bool:
        """Return whether something is switched on."""
        return self.values.get(name) is True

    def said(self, name: str) -> str:
        """Return a short text with nothing in it that a terminal would obey."""
        value = self.values.get(name)
        text = value if isinstance(value, str) else "no reason given"
        return "".join(c if c.isprintable() else " " for c in text[:300])

    def vector(self, name: str, like: Tensor) -> Tensor:
        """Return a vector with as many numbers as another, of its type."""
        return self.rows(name, tuple(like.shape), like)

    def rows(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return an array of this shape, with numbers of the type of another."""
        array, wanted = self.arrays.get(name), str(like.dtype).removeprefix("torch.")
        if array is None:
            raise BadParcelError(f"the answer has no {name}")
        if array.shape != shape or str(array.dtype) != wanted:
            raise BadParcelError(
                f"expected {name} of shape {list(shape)} and type {wanted}, got {list(array.shape)[:4]} {array.dtype}"
            )
        return torch.from_numpy(array.copy()).to(like.device)


def as_array(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as it is put into a parcel."""
    array: NDArray[Any] = tensor.detach().cpu().contiguous().numpy()
    return array


def refusal(reason: str) -> Parcel:
    """Return the answer of a device that does not do what it was asked for."""
    return Parcel("refused", {"reason": reason})


def _array(name: str, wire: Wire) -> NDArray[Any]:
    if wire.dtype not in DTYPES or len(wire.shape) > 2 or any(length < 0 for length in wire.shape):
        raise BadParcelError(f"the array {name[:40]!r} has type {wire.dtype[:40]!r} and {len(wire.shape)} dimensions")
    needed = math.prod(wire.shape) * np.dtype(wire.dtype).itemsize
    if len(wire.data) != needed:
        raise BadParcelError(f"the array {name[:40]!r} has {len(wire.data)} bytes, and its shape needs {needed}")
    return np.frombuffer(wire.data, dtype=wire.dtype).reshape(wire.shape)
