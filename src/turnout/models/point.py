"""Point: one parameter vector, which is the output for every sample.

Intuition: with quadratic losses the model is the optimised point itself, so its path has a closed form.

    f(input) = x

Reduces to: optimisation of x itself; the inputs have no effect.
Reference: Wang, Liu, Liang, Joshi, Poor. NeurIPS 2020. arXiv:2007.07481 (its quadratic example).
"""

from typing import Literal

import torch
from torch import Tensor, nn

from turnout.settings import Number, Width, rule


class Vector(nn.Module):
    """A module whose output is its parameter vector."""

    def __init__(self, point: Tensor) -> None:
        super().__init__()
        self.point = nn.Parameter(point)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the point, once per sample."""
        return self.point.expand(inputs.shape[0], -1)


@rule("model")
class Point:
    """A vector in `dim` dimensions."""

    dim: Width  # number of coordinates d of the model x, 1 or more
    start: Number = 0.0  # initial value of every coordinate, any number; 0 is usual
    # precision of the coordinates: "float32" (usual), or "float64" for comparisons with a closed form
    dtype: Literal["float32", "float64"] = "float32"

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the module at its initial value; it depends on neither samples nor outputs."""
        kind = torch.float64 if self.dtype == "float64" else torch.float32
        return Vector(torch.full((self.dim,), self.start, dtype=kind, device=generator.device))
