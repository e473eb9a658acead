"""Memory that a worker uses again from block to block: to touch fresh memory costs more than the arithmetic on it."""

import math

import torch
from torch import Tensor

MOST_KEPT = 256 << 20  # bytes of one buffer: what is larger goes back when it is done with


class Scratch:
    """Named buffers, each as large as was ever needed, within reason. One worker uses it at a time."""

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Return a buffer of this shape; what it holds is whatever was left there."""
        need, buffer = math.prod(shape), self.buffers.get(name)
        if need * like.element_size() > MOST_KEPT:
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        if buffer is None or buffer.numel() < need or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self.buffers[name] = torch.empty(need, dtype=like.dtype, device=like.device)
        return buffer[:need].view(shape)
