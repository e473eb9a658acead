"""The layout: maps a module's parameters to one flat vector, and back.

Outside the module, a model is one flat vector. The vector stores weight matrices transposed, as (in, out), so that a
stack of them multiplies a stack of batches without a copy; the module gets a transposed view. Weights of narrow linear
layers, such as a head for ten classes, are stored as (out, in), as in the module: a product with rows of ten numbers
takes two to four times as long as one with columns of ten numbers.
Floating-point buffers (BatchNorm statistics) are a second, shorter vector. Integer buffers and frozen parameters
(`requires_grad` is false) stay in the module: they are neither trained nor sent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)  # with weights of their own
NARROW = 16  # a linear layer with fewer outputs is narrow: its rows are shorter than two vector registers


@dataclass(frozen=True, slots=True)
class Slot:
    """The position of one parameter in the flat vector."""

    name: str  # name of the parameter in the module
    start: int  # first position
    stop: int  # position after the last
    shape: tuple[int, ...]  # shape in the module
    transposed: bool  # whether the vector stores the transposed matrix

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape in which the vector stores the parameter."""
        return self.shape[::-1] if self.transposed else self.shape or (1,)

    def view(self, flat: Tensor) -> Tensor:
        """Return the parameter in the module's shape, as a view of a flat vector."""
        stored = flat[self.start : self.stop].view(self.stored_shape)
        return self.seen(stored)

    def seen(self, stored: Tensor) -> Tensor:
        """Return the parameter in the module's shape, as a view of the stored tensor."""
        return stored.t() if self.transposed else stored.view(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all parameters and buffers of a module in their flat vectors."""

    slots: tuple[Slot, ...]  # trainable parameters
    buffers: tuple[Slot, ...]  # floating-point buffers
    norms: tuple[str, ...] = ()  # names of the normalisation layers

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.slots[-1].stop if self.slots else 0

    @property
    def buffer_size(self) -> int:
        """The number of floating-point buffer entries."""
        return self.buffers[-1].stop if self.buffers else 0

    @property
    def numbers(self) -> dict[str, int]:
        """Index of each parameter's slot, by name."""
        return {slot.name: number for number, slot in enumerate(self.slots)}

    def places(self, names: Sequence[str]) -> frozenset[int]:
        """Return the indices of these parameters' slots."""
        return frozenset(at for at, slot in enumerate(self.slots) if slot.name in names)

    def columns(self, names: Sequence[str]) -> Tensor:
        """Return the positions of these parameters in the flat vector, in the vector's order."""
        return _columns(self.slots, names)

    def buffer_columns(self, names: Sequence[str]) -> Tensor:
        """Return the positions of these buffers in their flat vector, in the vector's order."""
        return _columns(self.buffers, names)

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        """Return the layout of a module."""
        transposed = {
            f"{prefix}.{name}" if prefix else name
            for prefix, child in module.named_modules()
            if isinstance(child, nn.RNNBase | nn.MultiheadAttention)
            or (isinstance(child, nn.Linear) and child.out_features >= NARROW)
            for name, parameter in child.named_parameters(recurse=False)
            if parameter.dim() == 2
        }
        params = [(name, p, name in transposed) for name, p in module.named_parameters() if p.requires_grad]
        floats = [(name, b, False) for name, b in module.named_buffers() if b.is_floating_point()]
        norms = tuple(name for name, child in module.named_modules() if isinstance(child, NORMS))
        return cls(tuple(_slots(params)), tuple(_slots(floats)), norms)

    def flatten(self, module: nn.Module) -> Tensor:
        """Return a copy of the module's parameters as one vector."""
        params = dict(module.named_parameters())
        return _gather(self.slots, params)

    def flatten_buffers(self, module: nn.Module) -> Tensor:
        """Return a copy of the module's floating-point buffers as one vector."""
        return _gather(self.buffers, dict(module.named_buffers()))

    def load(self, module: nn.Module, flat: Tensor, buffers: Tensor | None = None) -> nn.Module:
        """Write a vector into a module's parameters, in place, and return the module."""
        params = dict(module.named_parameters())
        with torch.no_grad():
            for slot in self.slots:
                params[slot.name].copy_(slot.view(flat))
        if buffers is not None:
            self.load_buffers(module, buffers)
        return module

    def load_buffers(self, module: nn.Module, buffers: Tensor) -> None:
        """Write a vector into a module's floating-point buffers, in place."""
        targets = dict(module.named_buffers())
        for slot in self.buffers:
            targets[slot.name].copy_(slot.view(buffers))

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return every parameter as a view of a flat vector, by name."""
        return {slot.name: slot.view(flat) for slot in self.slots}


def _columns(slots: Sequence[Slot], names: Sequence[str]) -> Tensor:
    places = [torch.arange(slot.start, slot.stop) for slot in slots if slot.name in names]
    return torch.cat(places) if places else torch.zeros(0, dtype=torch.int64)


def _slots(entries: Sequence[tuple[str, Tensor, bool]]) -> Iterator[Slot]:
    start = 0
    for name, value, transposed in entries:
        yield Slot(name, start, start + value.numel(), tuple(value.shape), transposed)
        start += value.numel()


def _gather(slots: tuple[Slot, ...], values: Mapping[str, Tensor]) -> Tensor:
    pieces = [(values[s.name].t() if s.transposed else values[s.name]).detach().reshape(-1) for s in slots]
    return torch.cat(pieces) if pieces else torch.zeros(0)
