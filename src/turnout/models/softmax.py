"""Softmax: softmax regression, one linear layer on the flattened sample.

Intuition: the simplest classifier; its cross-entropy loss is convex, so every minimum is a global one.

    z = W·vec(x) + b

Reduces to: linear regression under the squared error.
Differs from the paper: the layer has a bias by default; bias = false is the model of the power-of-choice experiments.
Reference: Li et al. (FedProx). MLSys 2020. arXiv:1812.06127; Cho, Wang, Joshi. arXiv:2010.01243.
"""

import torch
from torch import nn

from turnout.models.initialise import build_initialised
from turnout.models.shapes import flat_size
from turnout.settings import rule


@rule("model")
class Softmax:
    """One linear layer."""

    zero_init: bool = True  # whether training starts at W = 0 and b = 0 (usual); false draws PyTorch's default weights
    bias: bool = True  # whether the layer has a bias b, one number per class (usual)

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for samples of this shape."""
        size = flat_size("Softmax", example_shape)
        module = build_initialised(
            lambda: nn.Sequential(nn.Flatten(), nn.Linear(size, num_outputs, bias=self.bias)), generator
        )
        if self.zero_init:
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
        return module
