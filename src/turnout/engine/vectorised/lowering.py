"""Lowering: a module as batched operations over a stack of clients.

Known layers become batched operations (see `layers`), and one backward pass over the summed loss then gives every
row its own gradient. A module with a layer not known there is mapped by `torch.func.vmap` instead.
"""

import copy
import operator
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from turnout.engine.vectorised.layers import LAYERS, CannotLower, Linear, Op, Pass, Sink, linear
from turnout.engine.vectorised.loss_accumulator import LossAccumulator
from turnout.losses import Loss
from turnout.models.layout import Layout


class Batch(NamedTuple):
    """One mini-batch per row."""

    x: Tensor  # (rows, batch, …)
    y: Tensor
    weights: Tensor | None  # (rows, batch), where batches differ in size; None: all samples count alike


class Program(Protocol):
    """A forward and backward pass over a stack of rows."""

    def run(self, params: Sequence[Tensor], batch: Batch, sink: Sink, loss_sums: LossAccumulator) -> None:
        """Give every row's gradients to the sink and its loss to the tally."""
        ...


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
        self.instructions, self.result = _compile(module, layout)

    def forward(self, run: Pass, x: Tensor) -> Tensor:
        """Return the outputs of every row, (rows, batch, …)."""
        values: dict[int, Any] = {0: x}
        for step in self.instructions:
            values[step.out] = step.op(run, *(values[i] for i in step.inputs))
        out: Tensor = values[self.result]
        return out

    def run(self, params: Sequence[Tensor], batch: Batch, sink: Sink, loss_sums: LossAccumulator) -> None:
        """Give every row's gradients to the sink and its loss to the tally."""
        x, y, weights = batch
        token = torch.zeros((), device=x.device, requires_grad=True)
        run = Pass(params, sink, token)
        rows = row_losses(self.loss, self.forward(run, x), y, weights)
        torch.autograd.backward(rows, torch.ones_like(rows))
        for slot, leaf in run.leaves.items():
            if leaf.grad is not None:
                sink.plain(slot, leaf.grad)
        loss_sums.add(rows.detach())


class Mapped:
    """A module mapped over rows by vmap: slower than lowered, but any functional module will do."""

    def __init__(self, module: nn.Module, layout: Layout, loss: Loss) -> None:
        self.module, self.layout, self.loss = module, layout, loss
        self.own = threading.local()  # a functional call swaps parameters in and out: one module per thread

    def _mapped(self) -> Callable[..., tuple[tuple[Tensor, ...], Tensor]]:
        if not hasattr(self.own, "mapped"):
            module, slots, loss = copy.deepcopy(self.module).train(), self.layout.slots, self.loss

            def row_loss(stored: tuple[Tensor, ...], x: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
                named = {s.name: s.seen(p) for s, p in zip(slots, stored, strict=True)}
                value = (loss(torch.func.functional_call(module, named, (x,)), y) * weights).sum()
                return value, value

            self.own.mapped = torch.func.vmap(torch.func.grad(row_loss, has_aux=True))
        mapped: Callable[..., tuple[tuple[Tensor, ...], Tensor]] = self.own.mapped
        return mapped

    def run(self, params: Sequence[Tensor], batch: Batch, sink: Sink, loss_sums: LossAccumulator) -> None:
        """Give every row's gradients to the sink and its loss to the tally."""
        x, y, weights = batch
        if weights is None:
            weights = torch.full(x.shape[:2], 1.0 / x.shape[1], dtype=params[0].dtype, device=x.device)
        grads, losses = self._mapped()(tuple(params), x, y, weights)
        for slot, grad in enumerate(grads):
            sink.plain(slot, grad)
        loss_sums.add(losses.detach())


def row_losses(loss: Loss, out: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
    """Return the mean loss of every row's batch; `weights` (rows, batch) replaces the mean where batches differ."""
    rows, batch = y.shape[:2]
    each = loss(out.reshape(rows * batch, *out.shape[2:]), y.reshape(rows * batch, *y.shape[2:])).view(rows, batch)
    return each.mean(1) if weights is None else (each * weights).sum(1)


def _compile(module: nn.Module, layout: Layout) -> tuple[list[Instruction], int]:
    chain = sequential_layers(module)
    if chain is not None:  # no tracing, and no import of what tracing needs
        return _compile_chain(chain, layout)
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
            op, inputs = _lower_node(node, modules, layout, used, follower is not None)
            if follower is not None:
                fused[follower] = node
            numbers[node] = len(numbers)
            program.append(Instruction(numbers[node], op, tuple(numbers[i] for i in inputs)))
    return program, result


def sequential_layers(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]] | None:
    """Return the layers of a plain nn.Sequential, nested or not, with their names; None for anything else."""
    if type(module) is not nn.Sequential:
        return None
    layers: list[tuple[str, nn.Module]] = []
    for name, child in module._modules.items():  # named_children leaves out a layer that stands there twice
        path = f"{prefix}{name}"
        inner = None if child is None else sequential_layers(child, f"{path}.")
        if child is None or (inner is None and type(child) not in LAYERS and type(child) is not nn.Linear):
            return None
        layers += [(path, child)] if inner is None else inner
    names = {id(child) for _, child in layers}
    return layers if len(names) == len(layers) else None


def linear_of(name: str, layer: nn.Module, layout: Layout, rectify: bool) -> Linear:
    """Return the linear layer of that name; raises CannotLower where its parameters are not its own."""
    own = _own(name, layer, layout)
    return Linear(own["weight"], own.get("bias"), rectify, layout.slots[own["weight"]].transposed)


def _other(name: str, layer: nn.Module, layout: Layout) -> Op:
    """Return the operation of a layer that is not linear."""
    maker = LAYERS.get(type(layer))
    if maker is None:
        raise CannotLower(f"{name} is a {type(layer).__name__}")
    return maker(layer, _own(name, layer, layout))


def _own(name: str, layer: nn.Module, layout: Layout) -> dict[str, int]:
    """Return the slots of a layer's parameters, by their names in the layer."""
    own = {key: layout.numbers.get(f"{name}.{key}") for key, _ in layer.named_parameters(recurse=False)}
    if None in own.values():
        raise CannotLower(f"{name} has a parameter that is frozen, or another layer's, too")
    return {key: number for key, number in own.items() if number is not None}


def _compile_chain(layers: list[tuple[str, nn.Module]], layout: Layout) -> tuple[list[Instruction], int]:
    program: list[Instruction] = []
    at, number = 0, 0
    while at < len(layers):
        name, layer = layers[at]
        if type(layer) is nn.Linear:
            rectify = at + 1 < len(layers) and type(layers[at + 1][1]) is nn.ReLU
            op, at = linear(linear_of(name, layer, layout, rectify)), at + 1 + rectify
        else:
            op, at = _other(name, layer, layout), at + 1
        program.append(Instruction(number + 1, op, (number,)))
        number += 1
    return program, number


def _relu_after(node: fx.Node, modules: dict[str, nn.Module]) -> fx.Node | None:
    """Return the ReLU that alone follows a linear layer: the two are run as one."""
    if node.op != "call_module" or type(modules[str(node.target)]) is not nn.Linear or len(node.users) != 1:
        return None
    after = next(iter(node.users))
    if after.op == "call_module" and type(modules[str(after.target)]) is nn.ReLU:
        return after
    return after if after.op == "call_function" and after.target in (torch.relu, F.relu) else None


def _lower_node(
    node: fx.Node, modules: dict[str, nn.Module], layout: Layout, used: set[str], rectify: bool
) -> tuple[Op, list[fx.Node]]:
    if node.op == "call_module":
        name = str(node.target)
        child = modules[name]
        if name in used and any(True for _ in child.parameters()):
            raise CannotLower(f"{name} is used twice")
        used.add(name)
        _check_use(node, child)
        if type(child) is nn.Linear:
            return linear(linear_of(name, child, layout, rectify)), list(node.all_input_nodes)
        return _other(name, child, layout), list(node.all_input_nodes)
    if node.op in ("call_function", "call_method"):
        return _function(node), list(node.all_input_nodes)
    raise CannotLower(f"{node.op} {node.target}")


def _check_use(node: fx.Node, layer: nn.Module) -> None:
    """Raise unless the layer is used as it is lowered: one input, and of an LSTM the outputs alone."""
    if len(node.all_input_nodes) != 1:
        raise CannotLower(f"{node.target} has more than one input")
    if type(layer) is nn.LSTM and not all(
        user.target is operator.getitem and (user.args[1] == 0 or not user.users) for user in node.users
    ):
        raise CannotLower(f"the last state of {node.target} is used")
    if getattr(layer, "inplace", False):
        _check_in_place(node)


def _check_in_place(node: fx.Node) -> None:
    """Raise where an operation in place changes what others use, too: lowered, it would not."""
    if any(len(given.users) > 1 for given in node.all_input_nodes):
        raise CannotLower(f"{node.target} works in place on what is used elsewhere, too")


def _function(node: fx.Node) -> Op:
    target = node.target
    if target in (torch.relu, F.relu, "relu"):
        if node.kwargs.get("inplace") or len(node.args) > 1:
            _check_in_place(node)
        return lambda run, h: F.relu(h)
    if target in (torch.tanh, "tanh"):
        return lambda run, h: torch.tanh(h)
    if target in (torch.flatten, "flatten") and node.args[1:] == (1,) and not node.kwargs:
        return lambda run, h: h.flatten(2)
    if target in (operator.add, torch.add) and len(node.all_input_nodes) == 2 and not node.kwargs:
        return lambda run, a, b: a + b
    if target is operator.getitem:
        index: Any = node.args[1]
        if isinstance(index, int):
            return lambda run, h: h[index] if isinstance(h, tuple) else h[:, index]
        if isinstance(index, tuple) and all(isinstance(i, int | slice) for i in index):
            return lambda run, h: h[(slice(None), *index)]
    raise CannotLower(f"the function {target}")
