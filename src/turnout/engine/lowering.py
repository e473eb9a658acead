"""Lowering: a module as batched operations over a stack of clients.

Every activation carries the rows in front: (rows, batch, …). Linear layers become bmm, convolutions grouped
convolutions, embeddings offset lookups, LSTMs step-wise bmm. One backward pass over the summed loss then gives every
row its own gradient. A linear layer hands its gradient to a sink as the two factors hᵀ·d, so that a plain solver
never writes it to memory. A module with a layer not known here is mapped by `torch.func.vmap` instead.
"""

import copy
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from turnout.losses import Loss
from turnout.models.layout import Layout


class Sink(Protocol):
    """Where gradients go: straight into the parameters, or into a buffer for the solver."""

    def linear(self, weight: int, bias: int | None, inputs: Tensor, errors: Tensor) -> None:
        """Take the gradient inputsᵀ·errors of a linear layer's parameters, given by their slots."""
        ...

    def plain(self, slot: int, grad: Tensor) -> None:
        """Take the gradient of one parameter."""
        ...


class Program(Protocol):
    """A forward and backward pass over a stack of rows."""

    def run(self, params: Sequence[Tensor], x: Tensor, y: Tensor, weights: Tensor | None, sink: Sink) -> Tensor:
        """Give every row's gradients to the sink and return the rows' losses."""
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
    def forward(ctx: Any, h: Tensor, token: Tensor, run: Pass, weight: int, bias: int | None, rectify: bool) -> Tensor:
        stack = run.params[weight]
        h3 = h.reshape(len(stack), -1, stack.shape[1])
        out = torch.bmm(h3, stack) if bias is None else torch.baddbmm(run.params[bias].unsqueeze(1), h3, stack)
        if rectify:
            out.relu_()
        ctx.kept = (h3, out if rectify else None, run, weight, bias, h.shape)
        return out.view(*h.shape[:-1], stack.shape[2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        h3, out, run, weight, bias, shape = ctx.kept
        stack = run.params[weight]
        d = grads[0].reshape(len(stack), -1, stack.shape[2])
        if out is not None:
            d = torch.ops.aten.threshold_backward(d, out, 0)
        below = torch.bmm(d, stack.transpose(1, 2)).view(shape) if ctx.needs_input_grad[0] else None
        run.sink.linear(weight, bias, h3, d)
        return below, None, None, None, None, None


Op = Callable[..., Any]  # (run: Pass, *inputs) -> output


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation: where its inputs and output live."""

    out: int
    op: Op
    inputs: tuple[int, ...]


class Lowered:
    """A module as a list of batched operations."""

    def __init__(self, module: nn.Module, layout: Layout, loss: Loss) -> None:
        self.loss = loss
        self.slots = {slot.name: i for i, slot in enumerate(layout.slots)}
        self.instructions, self.result = _compile(module, self.slots)

    def forward(self, run: Pass, x: Tensor) -> Tensor:
        """Return the outputs of every row, (rows, batch, …)."""
        values: dict[int, Any] = {0: x}
        for step in self.instructions:
            values[step.out] = step.op(run, *(values[i] for i in step.inputs))
        out: Tensor = values[self.result]
        return out

    def run(self, params: Sequence[Tensor], x: Tensor, y: Tensor, weights: Tensor | None, sink: Sink) -> Tensor:
        """Give every row's gradients to the sink and return the rows' losses."""
        token = torch.zeros((), device=x.device, requires_grad=True)
        run = Pass(params, sink, token)
        rows = row_losses(self.loss, self.forward(run, x), y, weights)
        torch.autograd.backward(rows, torch.ones_like(rows))
        for slot, leaf in run.leaves.items():
            if leaf.grad is not None:
                sink.plain(slot, leaf.grad)
        return rows.detach()


class Mapped:
    """A module mapped over rows by vmap: slower than lowered, but any functional module will do."""

    def __init__(self, module: nn.Module, layout: Layout, loss: Loss) -> None:
        self.module, self.layout, self.loss = module, layout, loss
        self.own = threading.local()  # a functional call swaps parameters in and out: one module per thread

    def _mapped(self) -> Callable[..., tuple[tuple[Tensor, ...], Tensor]]:
        if not hasattr(self.own, "mapped"):
            module, slots, loss = copy.deepcopy(self.module).train(), self.layout.slots, self.loss

            def row_loss(stored: tuple[Tensor, ...], x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
                named = {s.name: p.t() if s.transposed else p for s, p in zip(slots, stored, strict=True)}
                value = (loss(torch.func.functional_call(module, named, (x,)), y) * weights).sum()
                return value, value

            self.own.mapped = torch.func.vmap(torch.func.grad(row_loss, has_aux=True))
        mapped: Callable[..., tuple[tuple[Tensor, ...], Tensor]] = self.own.mapped
        return mapped

    def run(self, params: Sequence[Tensor], x: Tensor, y: Tensor, weights: Tensor | None, sink: Sink) -> Tensor:
        """Give every row's gradients to the sink and return the rows' losses."""
        if weights is None:
            weights = torch.full(x.shape[:2], 1.0 / x.shape[1], dtype=params[0].dtype, device=x.device)
        grads, losses = self._mapped()(tuple(params), x, y, weights)
        for slot, grad in enumerate(grads):
            sink.plain(slot, grad)
        return losses.detach()


def row_losses(loss: Loss, out: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean loss of every row's batch; `weights` (rows, batch) replaces the mean where batches differ."""
    rows, batch = y.shape[:2]
    each = loss(out.reshape(rows * batch, *out.shape[2:]), y.reshape(rows * batch, *y.shape[2:])).view(rows, batch)
    return each.mean(1) if weights is None else (each * weights).sum(1)


def _compile(module: nn.Module, slots: dict[str, int]) -> tuple[list[Instruction], int]:
    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:  # whatever tracing trips over, the module is not lowered
        raise CannotLower(str(error)) from error
    modules = dict(module.named_modules())
    used: set[str] = set()
    numbers: dict[fx.Node, int] = {}
    program: list[Instruction] = []
    fused: dict[fx.Node, fx.Node] = {}
    result = 0
    for node in graph.nodes:
        if node.op == "placeholder":
            if numbers:
                raise CannotLower("more than one input")
            numbers[node] = 0
        elif node.op == "output":
            if not isinstance(node.args[0], fx.Node):
                raise CannotLower("more than one output")
            result = numbers[node.args[0]]
        elif node in fused:
            numbers[node] = numbers[fused[node]]
        else:
            follower = _relu_after(node, modules)
            op, inputs = _lower_node(node, modules, slots, used, follower is not None)
            if follower is not None:
                fused[follower] = node
            numbers[node] = len(numbers)
            program.append(Instruction(numbers[node], op, tuple(numbers[i] for i in inputs)))
    return program, result


def _relu_after(node: fx.Node, modules: dict[str, nn.Module]) -> fx.Node | None:
    """Return the ReLU that alone follows a linear layer: the two are run as one."""
    if node.op != "call_module" or type(modules[str(node.target)]) is not nn.Linear or len(node.users) != 1:
        return None
    after = next(iter(node.users))
    if after.op == "call_module" and type(modules[str(after.target)]) is nn.ReLU:
        return after
    return after if after.op == "call_function" and after.target in (torch.relu, F.relu) else None


def _lower_node(
    node: fx.Node, modules: dict[str, nn.Module], slots: dict[str, int], used: set[str], rectify: bool
) -> tuple[Op, list[fx.Node]]:
    if node.op == "call_module":
        name = str(node.target)
        child = modules[name]
        if name in used and any(True for _ in child.parameters()):
            raise CannotLower(f"{name} is used twice")
        used.add(name)
        own = {key: slots[f"{name}.{key}"] for key, _ in child.named_parameters(recurse=False)}
        if type(child) is nn.Linear:
            return _linear(own, rectify), list(node.all_input_nodes)
        maker = LAYERS.get(type(child))
        if maker is None:
            raise CannotLower(f"{name} is a {type(child).__name__}")
        return maker(child, own), list(node.all_input_nodes)
    if node.op in ("call_function", "call_method"):
        return _function(node), list(node.all_input_nodes)
    raise CannotLower(f"{node.op} {node.target}")


def _linear(own: dict[str, int], rectify: bool) -> Op:
    weight, bias = own["weight"], own.get("bias")
    return lambda run, h: _Linear.apply(h, run.token, run, weight, bias, rectify)  # type: ignore[no-untyped-call]


def _function(node: fx.Node) -> Op:
    target = node.target
    if target in (torch.relu, F.relu, "relu"):
        return lambda run, h: F.relu(h)
    if target in (torch.tanh, "tanh"):
        return lambda run, h: torch.tanh(h)
    if target in (torch.flatten, "flatten") and node.args[1:] == (1,) and not node.kwargs:
        return lambda run, h: h.flatten(2)
    if target in (operator.add, torch.add) and len(node.all_input_nodes) == 2:
        return lambda run, a, b: a + b
    if target is operator.getitem:
        index: Any = node.args[1]
        if isinstance(index, int):
            return lambda run, h: h[index] if isinstance(h, tuple) else h[:, index]
        if isinstance(index, tuple) and all(isinstance(i, int | slice) for i in index):
            return lambda run, h: h[(slice(None), *index)]
    raise CannotLower(f"the function {target}")


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
