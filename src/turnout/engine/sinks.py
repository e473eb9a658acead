"""Where a block's gradients go."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from turnout.protocols import Local, Memory, SlotUpdate
from turnout.streams import Floats


class RowSettings:
    """A solver's settings for a block: a float where all rows agree, else a tensor shaped to broadcast."""

    def __init__(self, settings: Mapping[str, Floats], like: Tensor) -> None:
        self.same = {name: float(values[0]) for name, values in settings.items() if (values == values[0]).all()}
        self.varied = {
            name: torch.as_tensor(values, dtype=like.dtype, device=like.device)
            for name, values in settings.items()
            if name not in self.same
        }

    def shaped(self, rows: int, dims: int) -> dict[str, Tensor | float]:
        """Return the settings of the first rows, for parameters of so many dimensions (rows included)."""
        varied = {name: values[:rows].view(rows, *[1] * (dims - 1)) for name, values in self.varied.items()}
        return {**self.same, **varied}


class FusedSGD:
    """Plain SGD inside the backward pass: a linear layer's gradient is never written to memory."""

    def __init__(self, settings: RowSettings) -> None:
        self.settings = settings
        self.params: Sequence[Tensor] = ()

    def enter(self, params: Sequence[Tensor], step: int) -> None:
        """Begin a step on these rows."""
        self.params = params
        rows = len(params[0])
        self.by_dim = {d: self.settings.shaped(rows, d)["lr"] for d in {p.dim() for p in params} | {3}}

    def linear(self, weight: int, bias: int | None, inputs: Tensor, errors: Tensor) -> None:
        """W ← W − η hᵀd; only the small error rows are scaled."""
        rate = self.by_dim[3]
        if isinstance(rate, float):
            self.params[weight].baddbmm_(inputs.transpose(1, 2), errors, alpha=-rate)
            if bias is not None:
                self.params[bias].sub_(errors.sum(1), alpha=rate)
            return
        scaled = errors * -rate
        self.params[weight].baddbmm_(inputs.transpose(1, 2), scaled)
        if bias is not None:
            self.params[bias].add_(scaled.sum(1))

    def plain(self, slot: int, grad: Tensor) -> None:
        """W ← W − η g."""
        rate = self.by_dim[self.params[slot].dim()]
        if isinstance(rate, float):
            self.params[slot].sub_(grad, alpha=rate)
        else:
            self.params[slot].addcmul_(grad, rate, value=-1.0)

    def leave(self) -> None:
        """End the step: everything has moved already."""


class Collected:
    """Gradients are gathered, then the solver moves every parameter."""

    def __init__(
        self,
        local: Local,
        settings: RowSettings,
        params: Sequence[Tensor],
        anchors: Sequence[Tensor],
        controls: Sequence[Tensor] | None,
    ) -> None:
        self.local, self.settings, self.anchors, self.controls = local, settings, anchors, controls
        self.state = local.begin(params)
        self.buffers = [torch.zeros_like(p) for p in params]
        self.grads: list[Tensor] = []
        self.params: Sequence[Tensor] = ()
        self.missing: set[int] = set()
        self.step = 0

    def enter(self, params: Sequence[Tensor], step: int) -> None:
        """Begin a step on these rows."""
        self.params, self.step, self.missing = params, step, set(range(len(params)))
        self.grads = [buffer[: len(params[0])] for buffer in self.buffers]

    def linear(self, weight: int, bias: int | None, inputs: Tensor, errors: Tensor) -> None:
        """Keep hᵀd."""
        self.missing -= {weight, bias}
        torch.bmm(inputs.transpose(1, 2), errors, out=self.grads[weight])
        if bias is not None:
            torch.sum(errors, 1, out=self.grads[bias])

    def plain(self, slot: int, grad: Tensor) -> None:
        """Keep the gradient."""
        self.missing.discard(slot)
        self.grads[slot].copy_(grad)

    def flat_state(self) -> list[Memory]:
        """Return the solver's state, every tensor as (rows, size)."""
        return [{name: value.flatten(1) for name, value in state.items()} for state in self.state]

    def leave(self) -> None:
        """End the step: clip, then let the solver move every parameter."""
        rows = len(self.params[0])
        for slot in self.missing:  # a parameter the loss does not depend on
            self.grads[slot].zero_()
        if "clip_norm" in self.local.features:
            clip_rows(self.grads, self.settings.shaped(rows, 1)["clip_norm"])
        for i, (param, grad) in enumerate(zip(self.params, self.grads, strict=True)):
            self.local.update(
                SlotUpdate(
                    param=param,
                    grad=grad,
                    anchor=self.anchors[i] if len(self.anchors[i]) == 1 else self.anchors[i][:rows],
                    state=self.state[i],
                    settings=self.settings.shaped(rows, param.dim()),
                    step=self.step,
                    control=None if self.controls is None else self.controls[i][:rows],
                )
            )


def clip_rows(grads: Sequence[Tensor], clip_norm: Tensor | float) -> None:
    """Scale every row's gradient, over all parameters, down to the norm allowed."""
    squares = torch.stack([grad.flatten(1).square().sum(1) for grad in grads]).sum(0)
    factor = (clip_norm / squares.sqrt().clamp_min(1e-12)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor.view(-1, *[1] * (grad.dim() - 1)))
