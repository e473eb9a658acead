"""Layers as batched operations: every activation carries the rows in front, (rows, batch, …).

A linear layer hands its gradient to a sink as the two factors h and d of hᵀ·d, so that a plain solver never writes it
to memory. Convolutions are grouped, embeddings are offset lookups, LSTMs are step-wise bmm. A layer of one's own is an
entry in `LAYERS`: a function of the layer and the slots of its parameters that returns an operation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer over a stack of rows: the slots of its parameters, and whether a ReLU follows.

    Activations h are (rows, batch, in) and errors d (rows, batch, out), whichever way the weights lie.
    """

    weight: int
    bias: int | None
    rectify: bool
    transposed: bool  # whether the weights lie (in, out); else (out, in)

    def outputs(self, params: Sequence[Tensor], h: Tensor) -> Tensor:
        """Return h·W + b."""
        left, right = (h, params[self.weight]) if self.transposed else (params[self.weight], h.transpose(1, 2))
        if self.bias is None:
            out = torch.bmm(left, right)
        else:
            out = torch.baddbmm(params[self.bias].unsqueeze(1 if self.transposed else 2), left, right)
        return out if self.transposed else out.transpose(1, 2)

    def below(self, params: Sequence[Tensor], d: Tensor) -> Tensor:
        """Return the errors of the inputs, d·Wᵀ."""
        weight = params[self.weight]
        return torch.bmm(d, weight.transpose(1, 2) if self.transposed else weight)

    def factors(self, h: Tensor, d: Tensor) -> tuple[Tensor, Tensor]:
        """Return two stacks whose product is the weights' gradient as they lie: hᵀ and d, or dᵀ and h."""
        return (h.transpose(1, 2), d) if self.transposed else (d.transpose(1, 2), h)


class Sink(Protocol):
    """Where gradients go: straight into the parameters, or into a buffer for the solver."""

    def linear(self, layer: Linear, inputs: Tensor, errors: Tensor) -> None:
        """Take the gradient inputsᵀ·errors of a linear layer's weights, and that of its bias."""
        ...

    def plain(self, slot: int, grad: Tensor) -> None:
        """Take the gradient of one parameter."""
        ...


class CannotLower(Exception):  # noqa: N818 - a signal between engine parts, never shown
    """The module has something that is not lowered."""


@dataclass(slots=True)
class Pass:
    """One forward and backward pass."""

    params: Sequence[Tensor]
    sink: Sink
    token: Tensor  # makes linear layers part of the graph though their weights are updated by hand
    leaves: dict[int, Tensor] = field(default_factory=dict)

    def leaf(self, slot: int) -> Tensor:
        """Return a parameter whose gradient autograd collects."""
        if slot not in self.leaves:
            self.leaves[slot] = self.params[slot].detach().requires_grad_()
        return self.leaves[slot]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, token: Tensor, run: Pass, layer: Linear) -> Tensor:
        h3 = h.reshape(len(h), -1, h.shape[-1])
        out = layer.outputs(run.params, h3)
        if layer.rectify:
            out.relu_()
        ctx.kept = (h3, out, run, layer, h.shape)
        return out.view(*h.shape[:-1], out.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        h3, out, run, layer, shape = ctx.kept
        d = grads[0].reshape(out.shape)
        if layer.rectify:
            d = torch.ops.aten.threshold_backward(d, out, 0)
        below = layer.below(run.params, d).view(shape) if ctx.needs_input_grad[0] else None
        run.sink.linear(layer, h3, d)
        return below, None, None, None


Op = Callable[..., Any]  # (run: Pass, *inputs) -> output


def linear(layer: Linear) -> Op:
    """Return a linear layer, with the ReLU after it where there is one."""
    return lambda run, h: _Linear.apply(h, run.token, run, layer)  # type: ignore[no-untyped-call]


def _elementwise(function: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, dict[str, int]], Op]:
    return lambda layer, own: lambda run, h: function(h)


def _flatten(layer: nn.Module, own: dict[str, int]) -> Op:
    if not isinstance(layer, nn.Flatten) or (layer.start_dim, layer.end_dim) != (1, -1):
        raise CannotLower("a Flatten of other dimensions")
    return lambda run, h: h.flatten(2)


def _dropout(layer: nn.Module, own: dict[str, int]) -> Op:
    raise CannotLower("dropout: each client draws its own, so clients run one by one")


def _pool(function: Callable[..., Tensor]) -> Callable[[nn.Module, dict[str, int]], Op]:
    def make(layer: nn.Module, own: dict[str, int]) -> Op:
        def pool(run: Pass, h: Tensor) -> Tensor:
            rows, batch = h.shape[:2]
            folded = h.transpose(0, 1).reshape(batch, rows * h.shape[2], *h.shape[3:])
            out = function(layer, folded)
            return out.view(batch, rows, h.shape[2], *out.shape[2:]).transpose(0, 1)

        return pool

    return make


def _conv2d(layer: nn.Module, own: dict[str, int]) -> Op:
    if not isinstance(layer, nn.Conv2d) or layer.padding_mode != "zeros":
        raise CannotLower("a convolution with another padding")
    weight, bias = own["weight"], own.get("bias")
    stride, padding, dilation, groups = layer.stride, layer.padding, layer.dilation, layer.groups

    def conv(run: Pass, h: Tensor) -> Tensor:
        rows, batch, channels = h.shape[:3]
        folded = h.transpose(0, 1).reshape(batch, rows * channels, *h.shape[3:])
        kernels = run.leaf(weight).flatten(0, 1)
        offsets = None if bias is None else run.leaf(bias).flatten()
        out = F.conv2d(folded, kernels, offsets, stride, padding, dilation, groups * rows)
        return out.view(batch, rows, -1, *out.shape[2:]).transpose(0, 1)

    return conv


def _norm(layer: nn.Module, own: dict[str, int]) -> Op:
    """Group and layer normalisation: normalise without weights, then scale each row by its own."""

    def norm(run: Pass, h: Tensor) -> Tensor:
        flat = h.flatten(0, 1)
        if isinstance(layer, nn.GroupNorm):
            out = F.group_norm(flat, layer.num_groups, eps=layer.eps).view(h.shape)
            shape = (h.shape[0], 1, h.shape[2], *[1] * (h.dim() - 3))
        else:
            assert isinstance(layer, nn.LayerNorm)
            out = F.layer_norm(flat, layer.normalized_shape, eps=layer.eps).view(h.shape)
            shape = (h.shape[0], *[1] * (h.dim() - 1 - len(layer.normalized_shape)), *layer.normalized_shape)
        if "weight" in own:
            out = out * run.leaf(own["weight"]).view(shape)
        return out + run.leaf(own["bias"]).view(shape) if "bias" in own else out

    return norm


def _embedding(layer: nn.Module, own: dict[str, int]) -> Op:
    if not isinstance(layer, nn.Embedding) or layer.max_norm is not None or layer.padding_idx is not None:
        raise CannotLower("an Embedding with max_norm or padding_idx")
    weight = own["weight"]

    def lookup(run: Pass, h: Tensor) -> Tensor:
        table = run.leaf(weight)
        offset = torch.arange(len(table), device=h.device).view(-1, *[1] * (h.dim() - 1)) * table.shape[1]
        return F.embedding(h + offset, table.flatten(0, 1))

    return lookup


def _lstm(layer: nn.Module, own: dict[str, int]) -> Op:
    if (
        not isinstance(layer, nn.LSTM)
        or layer.bidirectional
        or layer.proj_size
        or layer.dropout
        or not layer.batch_first
    ):
        raise CannotLower("an LSTM that is bidirectional, projected, with dropout or not batch-first")

    def lstm(run: Pass, h: Tensor) -> tuple[Tensor, None]:
        for level in range(layer.num_layers):
            w_in, w_rec = run.leaf(own[f"weight_ih_l{level}"]), run.leaf(own[f"weight_hh_l{level}"])
            gates = torch.bmm(h.flatten(1, 2), w_in).view(*h.shape[:3], -1)
            if layer.bias:
                offset = run.leaf(own[f"bias_ih_l{level}"]) + run.leaf(own[f"bias_hh_l{level}"])
                gates = gates + offset[:, None, None, :]
            h = _lstm_level(gates, w_rec)
        return h, None

    return lstm


def _lstm_level(gates: Tensor, w_rec: Tensor) -> Tensor:
    """Run one layer over time; gates (rows, batch, time, 4·hidden) hold the inputs' share."""
    hidden = gates.new_zeros(*gates.shape[:2], gates.shape[3] // 4)
    cell, outputs = hidden, []
    for t in range(gates.shape[2]):
        i, f, g, o = (gates[:, :, t] + torch.bmm(hidden, w_rec)).chunk(4, dim=-1)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        outputs.append(hidden)
    return torch.stack(outputs, dim=2)


LAYERS: dict[type[nn.Module], Callable[[Any, dict[str, int]], Op]] = {
    nn.ReLU: _elementwise(F.relu),
    nn.Tanh: _elementwise(torch.tanh),
    nn.Sigmoid: _elementwise(torch.sigmoid),
    nn.GELU: lambda layer, own: lambda run, h: F.gelu(h, approximate=layer.approximate),
    nn.Identity: _elementwise(lambda h: h),
    nn.Flatten: _flatten,
    nn.Dropout: _dropout,
    nn.MaxPool2d: _pool(lambda layer, h: layer(h)),
    nn.AvgPool2d: _pool(lambda layer, h: layer(h)),
    nn.AdaptiveAvgPool2d: _pool(lambda layer, h: layer(h)),
    nn.Conv2d: _conv2d,
    nn.GroupNorm: _norm,
    nn.LayerNorm: _norm,
    nn.Embedding: _embedding,
    nn.LSTM: _lstm,
}
