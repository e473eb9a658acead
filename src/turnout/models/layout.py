"""The layout: a module's parameters as one flat vector, and back.

The whole system speaks of a model as one vector. Weight matrices lie in it transposed, (in, out), so that a stack of
them multiplies a stack of batches without a copy; a module sees them through a transposed view and never knows. Those
of narrow linear layers, such as a head for ten classes, lie as the module has them, (out, in): products whose rows end
after ten numbers take two to four times as long as products whose columns do.
Floating-point buffers (BatchNorm statistics) are a second, shorter vector; integer buffers stay in the module, and so
do parameters that are frozen (`requires_grad` is false): nobody trains or sends them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

NARROW = 16  # outputs: a linear layer with fewer is narrow, its rows shorter than two vector registers


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter's place in the flat vector."""

    name: str
    start: int
    stop: int
    shape: tuple[int, ...]  # as the module has it
    transposed: bool

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape as it lies in the vector."""
        return self.shape[::-1] if self.transposed else self.shape or (1,)

    def view(self, flat: Tensor) -> Tensor:
        """Return the parameter, as the module has it, as a view of a flat vector."""
        stored = flat[self.start : self.stop].view(self.stored_shape)
        return self.seen(stored)

    def seen(self, stored: Tensor) -> Tensor:
        """Return the parameter as the module has it, given as it lies in the vector."""
        return stored.t() if self.transposed else stored.view(self.shape)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each parameter of a module lies in the flat vector."""

    slots: tuple[Slot, ...]
    buffers: tuple[Slot, ...]

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
        """The number of each parameter's slot, by name."""
        return {slot.name: number for number, slot in enumerate(self.slots)}

    @classmethod
    def of(cls, module: nn.Module) -> "Layout":
        """Return the layout of a module."""
        swapped = {
            f"{prefix}.{name}" if prefix else name
            for prefix, child in module.named_modules()
            if isinstance(child, nn.LSTM) or (isinstance(child, nn.Linear) and child.out_features >= NARROW)
            for name, parameter in child.named_parameters(recurse=False)
            if parameter.dim() == 2
        }
        params = [(name, p, name in swapped) for name, p in module.named_parameters() if p.requires_grad]
        floats = [(name, b, False) for name, b in module.named_buffers() if b.is_floating_point()]
        return cls(tuple(_slots(params)), tuple(_slots(floats)))

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
        held = dict(module.named_buffers())
        for slot in self.buffers:
            held[slot.name].copy_(slot.view(buffers))

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return every parameter as a view of a flat vector, by name."""
        return {slot.name: slot.view(flat) for slot in self.slots}


def _slots(entries: Sequence[tuple[str, Tensor, bool]]) -> Iterator[Slot]:
    start = 0
    for name, value, transposed in entries:
        yield Slot(name, start, start + value.numel(), tuple(value.shape), transposed)
        start += value.numel()


def _gather(slots: tuple[Slot, ...], values: Mapping[str, Tensor]) -> Tensor:
    pieces = [(values[s.name].t() if s.transposed else values[s.name]).detach().reshape(-1) for s in slots]
    return torch.cat(pieces) if pieces else torch.zeros(0)
