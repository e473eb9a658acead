"""Softmax regression: one linear layer on the flattened sample.

Intuition: the simplest classifier; with cross-entropy its loss is convex, so every method has one optimum to reach.

    z = W·vec(x) + b

Reduces to: linear regression under the squared error.
Differs from the paper: a bias is on by default; bias = false gives the power-of-choice experiments' model.
Reference: Li et al. (FedProx). MLSys 2020. arXiv:1812.06127; Cho, Wang, Joshi. arXiv:2010.01243.
"""

import torch
from torch import nn

from turnout.models.initialise import drawn
from turnout.models.shapes import flat_size
from turnout.settings import rule


@rule("model")
class Softmax:
    """One linear layer."""

    zero_init: bool = True  # start at W = 0, b = 0; else PyTorch's default draw
    bias: bool = True  # one number a class besides the weights

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for samples of this shape."""
        size = flat_size("Softmax", example_shape)
        module = drawn(lambda: nn.Sequential(nn.Flatten(), nn.Linear(size, num_outputs, bias=self.bias)), generator)
        if self.zero_init:
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
        return module
