"""Activations with their derivatives written out: a linear layer runs them in its own pass, without autograd."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Activation:
    """A function of each entry, and its derivative times the errors.

    The derivative is a function of the outputs where that is possible: then the function works in place.
    """

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor]  # (errors, outputs or inputs)
    of_inputs: bool = False  # whether the derivative needs the inputs

    def apply(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the outputs and what the derivative needs; h may be overwritten."""
        out = self.forward(h)
        return out, h if self.of_inputs else out


RELU = Activation(torch.relu_, lambda d, out: aten.threshold_backward(d, out, 0))


def _leaky_relu(layer: nn.LeakyReLU) -> Activation:
    slope = layer.negative_slope
    return Activation(
        lambda h: F.leaky_relu(h, slope), lambda d, h: aten.leaky_relu_backward(d, h, slope, False), of_inputs=True
    )


def _elu(layer: nn.ELU) -> Activation:
    alpha = layer.alpha
    return Activation(lambda h: F.elu(h, alpha), lambda d, h: aten.elu_backward(d, alpha, 1, 1, False, h), True)


def _softplus(layer: nn.Softplus) -> Activation:
    beta, threshold = layer.beta, layer.threshold
    return Activation(
        lambda h: F.softplus(h, beta, threshold), lambda d, h: aten.softplus_backward(d, h, beta, threshold), True
    )


def _gelu(layer: nn.GELU) -> Activation:
    kind = layer.approximate
    return Activation(
        lambda h: F.gelu(h, approximate=kind), lambda d, h: aten.gelu_backward(d, h, approximate=kind), True
    )


ACTIVATIONS: dict[type[nn.Module], Callable[[Any], Activation]] = {
    nn.ReLU: lambda layer: RELU,
    nn.LeakyReLU: _leaky_relu,
    nn.ELU: _elu,
    nn.GELU: _gelu,
    nn.SiLU: lambda layer: Activation(F.silu, lambda d, h: aten.silu_backward(d, h), True),
    nn.Tanh: lambda layer: Activation(torch.tanh_, lambda d, out: aten.tanh_backward(d, out)),
    nn.Sigmoid: lambda layer: Activation(torch.sigmoid_, lambda d, out: aten.sigmoid_backward(d, out)),
    nn.Softplus: _softplus,
}
FUNCTIONS: dict[Any, type[nn.Module]] = {  # the layer that does the same as a function or method
    torch.relu: nn.ReLU,
    F.relu: nn.ReLU,
    "relu": nn.ReLU,
    torch.tanh: nn.Tanh,
    F.tanh: nn.Tanh,
    "tanh": nn.Tanh,
    torch.sigmoid: nn.Sigmoid,
    F.sigmoid: nn.Sigmoid,
    "sigmoid": nn.Sigmoid,
    F.leaky_relu: nn.LeakyReLU,
    F.elu: nn.ELU,
    F.gelu: nn.GELU,
    F.silu: nn.SiLU,
    F.softplus: nn.Softplus,
}
