"""Layers over a stack of clients: every activation carries rows and samples in front, as (rows · batch, …).

What has no parameters of its own then runs as it is. A layer with parameters has one set of them per row. A linear
layer hands its gradient to a sink as the two factors h and d of hᵀ·d, so that a plain solver never writes it to memory;
an embedding hands over the rows it used. A layer of one's own is an entry in `LAYERS`: a function of the layer and the
slots of its parameters that returns an operation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnout.array_types import Bits
from turnout.engine.dropout import Dropout
from turnout.engine.vectorised.activations import Activation
from turnout.engine.vectorised.lazy_first_layer import FirstLayer


@dataclass(frozen=True, slots=True)
class Linear:
    """One linear layer over a stack of rows: the slots of its parameters, and the activation that follows.

    Activations h are (rows, batch, in) and errors d (rows, batch, out), whichever way the weights lie.
    """

    weight: int
    bias: int | None
    transposed: bool  # whether the weights lie (in, out); else (out, in)
    activation: Activation | None = None

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

    def lookup(self, slot: int, where: Tensor, grads: Tensor) -> None:
        """Take the gradients of entries of a table that were looked up: `where` counts through all rows' tables."""
        ...

    def plain(self, slot: int, grad: Tensor) -> None:
        """Take the gradient of one parameter."""
        ...


class Nowhere:
    """A sink for passes whose gradients nobody wants."""

    def linear(self, layer: Linear, inputs: Tensor, errors: Tensor) -> None:
        """Take nothing."""

    def lookup(self, slot: int, where: Tensor, grads: Tensor) -> None:
        """Take nothing."""

    def plain(self, slot: int, grad: Tensor) -> None:
        """Take nothing."""


class CannotLower(Exception):  # noqa: N818 - a signal between engine parts, never shown
    """The module has something that is not lowered."""


class BatchOfOne(Exception):  # noqa: N818 - a signal between engine parts: who knows the client says it
    """A batch that batch normalisation cannot take."""

    def __init__(self, row: int) -> None:
        super().__init__("Expected more than 1 value per channel when training")
        self.row = row


@dataclass(slots=True)
class Step:
    """What rows bring to a step beside parameters and samples."""

    number: int = 0
    keys: Bits = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))  # of each row, for dropout
    buffers: Sequence[Tensor] = ()  # the module's buffers, (rows, …) each, which the step may change
    first: FirstLayer | None = None  # in place of the first layer


@dataclass(slots=True)
class Pass:
    """One forward and backward pass."""

    params: Sequence[Tensor]
    sink: Sink
    token: Tensor  # makes linear layers part of the graph though their weights are updated by hand
    rows: int
    weights: Tensor | None = None  # (rows, batch): 0 for padding; None where there is none
    step: Step = field(default_factory=Step)
    leaves: dict[int, Tensor] = field(default_factory=dict)

    def leaf(self, slot: int) -> Tensor:
        """Return a parameter whose gradient autograd collects."""
        if slot not in self.leaves:
            self.leaves[slot] = self.params[slot].detach().requires_grad_()
        return self.leaves[slot]

    def by_row(self, h: Tensor) -> Tensor:
        """Return (rows · batch, …) as (rows, batch, …)."""
        return h.reshape(self.rows, -1, *h.shape[1:])


Op = Callable[..., Any]  # (run: Pass, *inputs) -> output


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, token: Tensor, run: Pass, layer: Linear, first: FirstLayer | None) -> Tensor:
        h3 = h.reshape(run.rows, -1, h.shape[-1])
        if first is None:
            out = layer.outputs(run.params, h3)
        else:
            out = first.outputs(run.rows, None if layer.bias is None else run.params[layer.bias])
        kept = out
        if layer.activation is not None:
            out, kept = layer.activation.apply(out)
        ctx.kept = (h3, kept, run, layer, first, h.shape)
        return out.reshape(*h.shape[:-1], out.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        h3, kept, run, layer, first, shape = ctx.kept
        d = grads[0].reshape(kept.shape)
        if layer.activation is not None:
            d = layer.activation.backward(d, kept)
        if first is not None:
            first.take(d)
            if layer.bias is not None:
                run.sink.plain(layer.bias, d.sum(1))
            return None, None, None, None, None
        below = layer.below(run.params, d).view(shape) if ctx.needs_input_grad[0] else None
        run.sink.linear(layer, h3, d)
        return below, None, None, None, None


@dataclass(frozen=True, slots=True)
class LinearOp:
    """A linear layer, with the activation after it where there is one."""

    layer: Linear
    is_first: bool = False  # whether its inputs are data and nobody else has its weights

    def __call__(self, run: Pass, h: Tensor) -> Tensor:
        """Return the layer's outputs."""
        first = run.step.first if self.is_first else None
        out: Tensor = _Linear.apply(h, run.token, run, self.layer, first)  # type: ignore[no-untyped-call]
        return out

    def followed_by(self, activation: Activation) -> "LinearOp":
        """Return the layer with this activation after it."""
        return replace(self, layer=replace(self.layer, activation=activation))


@dataclass(frozen=True, slots=True)
class DropoutOp:
    """Dropout with each row's own masks."""

    dropout: Dropout

    def __call__(self, run: Pass, h: Tensor) -> Tensor:
        """Return the entries that are kept, scaled."""
        return h * self.mask(run, h)

    def mask(self, run: Pass, h: Tensor) -> Tensor:
        """Return the factors of h, (rows · batch, …)."""
        return self.dropout.mask(run.step.keys[: run.rows], run.step.number, h)


def _linear(layer: nn.Linear, own: dict[str, int], stored: "Stored") -> Op:
    return LinearOp(Linear(own["weight"], own.get("bias"), stored(own["weight"])))


Stored = Callable[[int], bool]  # whether the weights of a slot lie transposed


def _conv2d(layer: nn.Conv2d, own: dict[str, int], stored: Stored) -> Op:
    if layer.padding_mode != "zeros":
        raise CannotLower("a convolution with another padding")
    weight, bias = own["weight"], own.get("bias")
    stride, padding, dilation, groups = layer.stride, layer.padding, layer.dilation, layer.groups

    def conv(run: Pass, h: Tensor) -> Tensor:
        h = run.by_row(h)
        rows, batch, channels = h.shape[:3]
        folded = h.transpose(0, 1).reshape(batch, rows * channels, *h.shape[3:])
        kernels = run.leaf(weight).flatten(0, 1)
        offsets = None if bias is None else run.leaf(bias).flatten()
        out = F.conv2d(folded, kernels, offsets, stride, padding, dilation, groups * rows)
        return out.view(batch, rows, -1, *out.shape[2:]).transpose(0, 1).flatten(0, 1)

    return conv


def _group_norm(layer: nn.GroupNorm, own: dict[str, int], stored: Stored) -> Op:
    def norm(run: Pass, h: Tensor) -> Tensor:
        out = F.group_norm(h, layer.num_groups, eps=layer.eps)
        return _scaled(run, out, own, (h.shape[1], *[1] * (h.dim() - 2)))

    return norm


def _layer_norm(layer: nn.LayerNorm, own: dict[str, int], stored: Stored) -> Op:
    def norm(run: Pass, h: Tensor) -> Tensor:
        out = F.layer_norm(h, layer.normalized_shape, eps=layer.eps)
        return _scaled(run, out, own, (*[1] * (h.dim() - 1 - len(layer.normalized_shape)), *layer.normalized_shape))

    return norm


def _scaled(run: Pass, h: Tensor, own: dict[str, int], shape: tuple[int, ...]) -> Tensor:
    """Return h times each row's weight plus its bias, which have this shape beside a sample."""
    if not own:
        return h
    out = run.by_row(h)
    if "weight" in own:
        out = out * run.leaf(own["weight"]).view(run.rows, 1, *shape)
    if "bias" in own:
        out = out + run.leaf(own["bias"]).view(run.rows, 1, *shape)
    return out.flatten(0, 1)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: Tensor, run: Pass, slot: int, where: Tensor, unmoved: Tensor | None) -> Tensor:
        table = run.params[slot]
        ctx.kept = (run, slot, where, unmoved)
        return F.embedding(where, table.flatten(0, 1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        run, slot, where, unmoved = ctx.kept
        grad = grads[0] if unmoved is None else grads[0].masked_fill(unmoved.unsqueeze(-1), 0.0)
        run.sink.lookup(slot, where.reshape(-1), grad.reshape(-1, grad.shape[-1]))
        return None, None, None, None, None


def _embedding(layer: nn.Embedding, own: dict[str, int], stored: Stored) -> Op:
    if layer.max_norm is not None or layer.scale_grad_by_freq:
        raise CannotLower("an embedding with max_norm or scale_grad_by_freq")
    weight, padding = own["weight"], layer.padding_idx

    def lookup(run: Pass, h: Tensor) -> Tensor:
        where = _of_all_tables(run, weight, h)
        unmoved = None if padding is None else h == padding
        out: Tensor = _Lookup.apply(run.token, run, weight, where, unmoved)  # type: ignore[no-untyped-call]
        return out

    return lookup


def _embedding_bag(layer: nn.EmbeddingBag, own: dict[str, int], stored: Stored) -> Op:
    if layer.max_norm is not None or layer.scale_grad_by_freq or layer.mode == "max":
        raise CannotLower("an embedding bag with max_norm, scale_grad_by_freq or mode max")
    weight, padding, is_mean = own["weight"], layer.padding_idx, layer.mode == "mean"

    def lookup(run: Pass, h: Tensor) -> Tensor:
        if h.dim() != 2:
            raise CannotLower("bags of unequal size")
        where = _of_all_tables(run, weight, h)
        unmoved = None if padding is None else h == padding
        out: Tensor = _Lookup.apply(run.token, run, weight, where, unmoved)  # type: ignore[no-untyped-call]
        if unmoved is None:
            return out.mean(1) if is_mean else out.sum(1)
        total = out.masked_fill(unmoved.unsqueeze(2), 0.0).sum(1)
        return total / (~unmoved).sum(1, keepdim=True).clamp_min(1) if is_mean else total

    return lookup


def _of_all_tables(run: Pass, slot: int, h: Tensor) -> Tensor:
    """Return places in each row's own table as places in all tables, one after another."""
    entries = run.params[slot].shape[1]
    offset = torch.arange(run.rows, device=h.device) * entries
    return (run.by_row(h) + offset.view(-1, *[1] * h.dim())).flatten(0, 1)


LAYERS: dict[type[nn.Module], Callable[[Any, dict[str, int], Stored], Op]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _embedding_bag,
}
