"""A frozen linear layer inside a module: all rows share its weights, so all their samples are one large product.

PyTorch takes float32 products to MKL, which on processors that are not Intel's uses half the width of their vectors.
oneDNN uses all of it: a large product then takes half the time. Small ones cost more to begin, so they stay where they
are, as do all others than float32 on the CPU.
"""

from typing import Any

import torch
from torch import Tensor, nn

LEAST_WORK = 1 << 21  # multiplications of one product from which oneDNN is worth its start
HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]


def _linear(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return h·Wᵀ + b by oneDNN."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(h, weight, bias, "none", [], "")
    return out


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.weight = weight
        return _linear(h, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _linear(grads[0].contiguous(), ctx.weight.t(), None), None, None


class FrozenLinear(nn.Linear):
    """A linear layer without trained parameters."""

    def forward(self, h: Tensor) -> Tensor:
        """Return h·W + b."""
        work = h.numel() * self.out_features
        if not HAS_ONEDNN or work < LEAST_WORK or h.dtype != torch.float32 or h.device.type != "cpu":
            return super().forward(h)
        flat = h.reshape(-1, self.in_features)
        out: Tensor = _Product.apply(flat, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out.view(*h.shape[:-1], self.out_features)


def frozen(layer: nn.Module) -> nn.Module:
    """Return a layer without trained parameters; a linear one as it is fast on many samples."""
    if type(layer) is not nn.Linear:
        return layer
    made = FrozenLinear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    made.weight, made.bias = layer.weight, layer.bias
    return made
