"""MLP: a multi-layer perceptron with ReLU on the flattened sample.

Intuition: the smallest model with a non-convex loss; the default is the "2NN" of the FedAvg paper.

    h₀ = vec(x),   h_j = max(0, W_j h_{j−1} + b_j),   z = W h_J + b

With `batch_norm`, every W_j h_{j−1} + b_j is normalised over the mini-batch before the maximum.

Reduces to: softmax regression when hidden is empty.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629.
"""

from itertools import pairwise

import torch
from torch import nn

from turnout.models.initialise import build_initialised
from turnout.models.shapes import flat_size
from turnout.settings import Width, rule


def perceptron(widths: tuple[int, ...], *, batch_norm: bool = False) -> list[nn.Module]:
    """Return linear layers through these widths, inputs first, with a ReLU between two layers."""
    layers: list[nn.Module] = []
    for size, width in pairwise(widths[:-1]):
        layers += [nn.Linear(size, width), *([nn.BatchNorm1d(width)] if batch_norm else []), nn.ReLU()]
    return [*layers, nn.Linear(widths[-2], widths[-1])]


@rule("model")
class MLP:
    """Fully connected layers."""

    # number of units of each hidden layer, 1 or more; an empty list is softmax regression, 200 and 200 is usual
    hidden: tuple[Width, ...] = (200, 200)
    batch_norm: bool = False  # whether the units of each hidden layer are normalised over the mini-batch

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for samples of this shape."""
        widths = (flat_size("MLP", example_shape), *self.hidden, num_outputs)
        return build_initialised(lambda: self._module(widths), generator)

    def _module(self, widths: tuple[int, ...]) -> nn.Module:
        return nn.Sequential(nn.Flatten(), *perceptron(widths, batch_norm=self.batch_norm))
