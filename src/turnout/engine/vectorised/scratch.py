"""Memory that a worker uses again from block to block: to touch fresh memory costs more than the arithmetic on it."""

import math

import torch
from torch import Tensor

MOST_KEPT = 256 << 20  # bytes of one buffer: what is larger goes back when it is done with


class Scratch:
    """Named buffers, each as large as was ever needed, within reason. One worker uses it at a time."""

    def __init__(self) -> None:
        self.held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return a buffer of this shape; what it holds is whatever was left there."""
        need, held = math.prod(shape), self.held.get(name)
        if need * like.element_size() > MOST_KEPT:
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        if held is None or held.numel() < need or held.dtype != like.dtype or held.device != like.device:
            held = self.held[name] = torch.empty(need, dtype=like.dtype, device=like.device)
        return held[:need].view(shape)
