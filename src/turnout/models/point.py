"""A point: one parameter vector, returned for every sample.

Intuition: with quadratic losses the model is the point itself, so the path of a method can be seen and solved by hand.

    f(input) = x

Reduces to: optimisation of x itself; the inputs do not matter and only the targets speak.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481 (its quadratic example).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from turnout.settings import Number, Width, rule


class Vector(nn.Module):
    """A parameter vector that answers every sample."""

    def __init__(self, point: Tensor) -> None:
        super().__init__()
        self.point = nn.Parameter(point)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the point, once per sample."""
        return self.point.expand(inputs.shape[0], -1)


@rule("model")
class Point:
    """A vector in `dim` dimensions."""

    dim: Width  # how many coordinates
    start: Number = 0.0  # every coordinate at the start
    dtype: Literal["float32", "float64"] = "float32"  # of the coordinates

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the point at its start, whatever the samples and outputs are."""
        kind = torch.float64 if self.dtype == "float64" else torch.float32
        return Vector(torch.full((self.dim,), self.start, dtype=kind, device=generator.device))
