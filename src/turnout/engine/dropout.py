"""Dropout whose masks are a pure function of (seed, round, client, step, call): the same in every engine.

    word_j = mix(mix(mix(key_i + step·γ) + call·γ) + j·γ)        four entries of 16 bits each
    an entry is kept if its 16 bits are at least ⌊2¹⁶·p + ½⌋

so p is rounded to a multiple of 2⁻¹⁶, and what is kept is divided by the share that is truly kept. Masks of a stack of
clients are drawn in one call; each is what the client draws alone. A padded sample comes after the client's own, so
padding changes no mask.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from turnout.array_types import Bits, Ids
from turnout.requests import Fit
from turnout.streams import GAMMA, mix, words

LEVELS = 1 << 16  # values of one entry's bits
PER_WORD = 4  # entries of one 64-bit word
BY_ENTRY: dict[Callable[..., Any], bool] = {F.dropout: True, F.dropout1d: False, F.dropout2d: False, F.dropout3d: False}
MODULES: dict[type[nn.Module], bool] = {nn.Dropout: True, nn.Dropout1d: False, nn.Dropout2d: False, nn.Dropout3d: False}


@dataclass(frozen=True, slots=True)
class Dropout:
    """One active call of dropout in a forward pass."""

    p: float  # probability that an entry becomes zero
    by_entry: bool  # whether entries are dropped one by one; else whole channels
    call: int  # its number among the calls of one forward pass

    def mask(self, keys: Bits, step: int, like: Tensor) -> Tensor:
        """Return the factors of `like`, (rows · batch, …), for rows with these keys."""
        lead = like.shape if self.by_entry else like.shape[:2]
        drawn = keep(keys, step, self.call, math.prod(lead) // len(keys), self.p)
        factors = torch.from_numpy(drawn).to(like) / max(1.0 - dropped_levels(self.p) / LEVELS, 1.0 / LEVELS)
        return factors.view(*lead, *[1] * (like.dim() - len(lead)))


def mask_keys(request: Fit, clients: Ids) -> Bits:
    """Return the keys of these clients' masks: steps are counted from the first of the round, in whichever request."""
    before = np.array([request.first_step], dtype=np.uint64)
    keys: Bits = request.streams.keys("dropout", request.round, clients) + before * GAMMA
    return keys


def dropped_levels(p: float) -> int:
    """Return how many of the 2¹⁶ values of an entry's bits mean that it is dropped."""
    return math.floor(LEVELS * p + 0.5)


def keep(keys: Bits, step: int, call: int, count: int, p: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which of each key's `count` entries are kept, (keys, count)."""
    of_step = mix(keys + np.array([step + 1], dtype=np.uint64) * GAMMA)
    of_call = mix(of_step + np.array([call + 1], dtype=np.uint64) * GAMMA)
    bits = words(of_call, -(-count // PER_WORD)).astype("<u8", copy=False).view("<u2")[:, :count]
    if dropped_levels(p) == LEVELS:
        return np.zeros(bits.shape, dtype=bool)
    kept: np.ndarray[Any, np.dtype[np.bool_]] = bits >= np.uint16(dropped_levels(p))
    return kept


class KeyedDropout(TorchFunctionMode):
    """While it is active, every dropout layer and F.dropout of this thread draws one client's masks by key."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.step, self.calls = np.zeros(1, dtype=np.uint64), 0, 0

    def begin(self, key: Bits, step: int) -> None:
        """Begin a forward pass of this client at this step."""
        self.key, self.step, self.calls = key, step, 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Answer a call of dropout, and pass every other call on."""
        if func not in BY_ENTRY:
            return func(*args, **(kwargs or {}))
        return self._dropout(BY_ENTRY[func], *args, **(kwargs or {}))

    def _dropout(
        self, by_entry: bool, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return x
        self.calls += 1
        factors = Dropout(p, by_entry, self.calls - 1).mask(self.key, self.step, x)
        return x.mul_(factors) if inplace else x * factors
