"""A model of one's own, and a study of it."""

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import turnout as to
from turnout.study import Study


class Net(nn.Module):
    """Draws with PyTorch, with numpy and with Python, and initialises a layer in its own way."""

    def __init__(self, width: int = 5, slope: float = 0.0) -> None:
        super().__init__()
        self.first, self.head, self.slope = nn.Linear(4, width), nn.Linear(width, 3), slope
        nn.init.constant_(self.head.bias, 0.25)
        self.scale = nn.Parameter(torch.rand(1) + np.random.rand() + random.random())  # noqa: NPY002

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(nn.functional.leaky_relu(self.first(x), self.slope)) * self.scale
        return scores


def study(**more: Any) -> Study:
    generator = torch.Generator().manual_seed(1)
    pairs = [(torch.randn(n, 4, generator=generator), torch.arange(n) % 3) for n in (5, 8, 13)]
    given = {"data": to.data.from_clients(pairs, test=pairs[0]), "model": Net, "rounds": 1, "seeds": 2}
    return Study(**{**given, "local": to.local.SGD(lr=0.1, batch_size=4, epochs=1), **more})
