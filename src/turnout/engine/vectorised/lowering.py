"""Lowering: a module as a list of operations over a stack of clients.

The module is traced (`tracing`). The part that depends on data alone, and on what is frozen, is split off: it is the
same for all clients. One backward pass over the summed loss then gives every row its own gradient. Whether a lowered
module agrees with the module itself is tried out before it is used (`kernels`); a module that cannot be lowered is
mapped by `torch.func.vmap` instead.
"""

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from turnout.engine.vectorised.layers import DropoutOp, Linear, LinearOp, Pass, Sink, Step
from turnout.engine.vectorised.loss_accumulator import LossAccumulator
from turnout.engine.vectorised.tracing import Compiler, Instruction
from turnout.losses import Loss, cross_entropy
from turnout.models.layout import Layout


class Batch(NamedTuple):
    """One mini-batch per row."""

    x: Tensor  # (rows, batch, …)
    y: Tensor
    weights: Tensor | None  # (rows, batch), where batches differ in size; None: all samples count alike


class Program(Protocol):
    """A forward and backward pass over a stack of rows."""

    @property
    def own_buffers(self) -> Tensor:
        """The module's own buffers, as one vector: rows start from them where they are sent none."""
        ...

    @property
    def is_random(self) -> bool:
        """Whether it draws masks, for which it needs the rows' keys."""
        ...

    @property
    def first_layer(self) -> Linear | None:
        """The linear layer whose inputs are samples, for which `Step.first` may stand in; None: there is none."""
        ...

    def run(self, params: Sequence[Tensor], batch: Batch, sink: Sink, loss_sums: LossAccumulator, step: Step) -> None:
        """Give every row's gradients to the sink and its loss to the tally."""
        ...


class Lowered:
    """A module as a list of batched operations."""

    def __init__(self, module: nn.Module, layout: Layout, loss: Loss) -> None:
        self.loss, self.own_buffers = loss, layout.flatten_buffers(module)
        compiler = Compiler(module, layout)
        instructions, self.result = compiler.compile()
        self.constants = compiler.constants
        self.shapes: list[torch.Size] | None = None  # of what is stored in place of samples
        self.before = [each for each in instructions if each.of_data]  # the same for all clients
        self.instructions = [each for each in instructions if not each.of_data]
        used = {at for each in self.instructions for at in each.inputs} | {self.result}
        self.given = sorted(used & {0, *(each.out for each in self.before)})  # what the rest needs of the data
        self.is_random = any(isinstance(each.op, DropoutOp) for each in self.instructions)
        self.worth_storing = any(each.has_frozen for each in self.before)
        self.first_layer = self._mark_first_layer()

    def _mark_first_layer(self) -> Linear | None:
        """Return the one linear layer whose inputs are data, if nothing else has its weights."""
        places = [at for at, each in enumerate(self.instructions) if _is_first(each, self.given)]
        if len(places) != 1:
            return None
        one = self.instructions[places[0]]
        assert isinstance(one.op, LinearOp)
        self.instructions[places[0]] = replace(one, op=replace(one.op, is_first=True))
        return one.op.layer

    def inputs(self, x: Tensor) -> list[Tensor]:
        """Return what the trained part needs of samples, (samples, …) each."""
        if self.shapes is not None:
            parts = torch.split(x, [shape.numel() for shape in self.shapes], dim=1)
            return [part.view(len(x), *shape) for part, shape in zip(parts, self.shapes, strict=True)]
        if not self.before:
            return [x]
        values: dict[int, Any] = {**self.constants, 0: x}
        with torch.no_grad():
            for each in self.before:
                values[each.out] = each.op(None, *(values[i] for i in each.inputs))
        return [values[at] for at in self.given]

    def forward(self, run: Pass, given: Sequence[Tensor]) -> Tensor:
        """Return the outputs of every row's samples, (rows · batch, …)."""
        values: dict[int, Any] = {**self.constants, **dict(zip(self.given, given, strict=True))}
        for each in self.instructions:
            values[each.out] = each.op(run, *(values[i] for i in each.inputs))
        out: Tensor = values[self.result]
        return out

    def run(self, params: Sequence[Tensor], batch: Batch, sink: Sink, loss_sums: LossAccumulator, step: Step) -> None:
        """Give every row's gradients to the sink and its loss to the tally."""
        x, y, weights = batch
        token = torch.zeros((), dtype=params[0].dtype, device=x.device, requires_grad=True)
        run = Pass(params, sink, token, len(y), weights, step)
        out = self.forward(run, self.inputs(x.flatten(0, 1)))
        if self.loss is cross_entropy and out.dim() == 2:
            errors = cross_entropy_errors(out.detach().reshape(*y.shape, -1).clone(), y, weights, loss_sums)
            torch.autograd.backward(out, errors.view_as(out))
        else:
            losses = row_losses(self.loss, out, y, weights)
            torch.autograd.backward(losses, torch.ones_like(losses))
            loss_sums.add(losses.detach())
        for slot, leaf in run.leaves.items():
            if leaf.grad is not None:
                sink.plain(slot, leaf.grad)


def _is_first(each: Instruction, given: Sequence[int]) -> bool:
    return isinstance(each.op, LinearOp) and len(given) == 1 and each.inputs == (given[0],)


class Mapped:
    """A module mapped over rows by vmap: slower than lowered, but any functional module will do."""

    is_random, first_layer, own_buffers = False, None, torch.zeros(0)  # a module with buffers is not mapped

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

    def run(self, params: Sequence[Tensor], batch: Batch, sink: Sink, loss_sums: LossAccumulator, step: Step) -> None:
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
    each = loss(out, y.flatten(0, 1)).view(y.shape[:2])
    return each.mean(1) if weights is None else (each * weights).sum(1)


def cross_entropy_errors(out: Tensor, y: Tensor, weights: Tensor | None, loss_sums: LossAccumulator) -> Tensor:
    """Return softmax(out) − onehot(y), scaled by 1/batch or by the weights, in place; the losses go to the tally.

    Written out, because with few classes torch's own softmax and cross-entropy take several times as long.
    """
    out -= out.amax(2, keepdim=True)
    labels = y.unsqueeze(2)
    right = out.gather(2, labels)
    errors = out.exp_()
    total = errors.sum(2, keepdim=True)
    loss_sums.add_samples(total, right, weights)
    errors.div_(total)
    errors.scatter_add_(2, labels, errors.new_full((1, 1, 1), -1.0).expand_as(labels))
    return errors.div_(y.shape[1]) if weights is None else errors.mul_(weights.unsqueeze(2))
