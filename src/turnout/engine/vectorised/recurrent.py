"""Recurrent layers over a stack of rows: a batched product per time step, and one for the gradient of all of them.

Through time, values lie (time, rows, batch, …). The backward pass is written out, so that the gradient of the recurrent
weights is one product over all time steps instead of a sum of as many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from turnout.engine.vectorised.layers import CannotLower, Linear, LinearOp, Op, Pass, Stored

aten = torch.ops.aten


class Cell(Protocol):
    """One time step and its derivative; `gates` has the inputs' share and keeps what the derivative needs."""

    @property
    def gates(self) -> int:
        """How many blocks of columns the gates have."""
        ...

    def forward(self, gates: Tensor, recurrent: Tensor, before: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the hidden state, the cell state and one more value for the derivative."""
        ...

    def backward(
        self, d: Tensor, d_cell: Tensor, gates: Tensor, kept: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the errors of the inputs' share, of the recurrent share, of the hidden and of the cell state before.

        `kept` is the hidden state before and after, the cell state before, and the value from `forward`.
        """
        ...


class LSTMCell:
    """c ← σ(f)·c + σ(i)·tanh(g);  h ← σ(o)·tanh(c)."""

    gates = 4

    def forward(self, gates: Tensor, recurrent: Tensor, before: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take one step."""
        gates.add_(recurrent)
        size = before.shape[2]
        gates[..., : 2 * size].sigmoid_()
        gates[..., 2 * size : 3 * size].tanh_()
        gates[..., 3 * size :].sigmoid_()
        i, f, g, o = gates.chunk(4, dim=-1)
        cell = torch.addcmul(f * cell, i, g)
        squashed = torch.tanh(cell)
        return o * squashed, cell, squashed

    def backward(
        self, d: Tensor, d_cell: Tensor, gates: Tensor, kept: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the errors."""
        _, _, cell, squashed = kept
        i, f, g, o = gates.chunk(4, dim=-1)
        d_cell = d_cell + aten.tanh_backward(d * o, squashed)
        below = torch.cat(
            [
                aten.sigmoid_backward(d_cell * g, i),
                aten.sigmoid_backward(d_cell * cell, f),
                aten.tanh_backward(d_cell * i, g),
                aten.sigmoid_backward(d * squashed, o),
            ],
            dim=-1,
        )
        return below, below, torch.zeros((), dtype=d.dtype), d_cell * f


class GRUCell:
    """n ← tanh(x_n + σ(r)·h_n);  h ← n + σ(z)·(h − n)."""

    gates = 3

    def forward(self, gates: Tensor, recurrent: Tensor, before: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take one step."""
        size = before.shape[2]
        reset_update, new = gates[..., : 2 * size], gates[..., 2 * size :]
        reset_update.add_(recurrent[..., : 2 * size]).sigmoid_()
        r, z = reset_update.chunk(2, dim=-1)
        share = recurrent[..., 2 * size :]
        new.addcmul_(r, share).tanh_()
        return torch.lerp(new, before, z), cell, share

    def backward(
        self, d: Tensor, d_cell: Tensor, gates: Tensor, kept: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the errors."""
        before, _, _, share = kept
        r, z, new = gates.chunk(3, dim=-1)
        d_before = d * z
        d_new = aten.tanh_backward(d - d_before, new)
        d_reset = aten.sigmoid_backward(d_new * share, r)
        d_update = aten.sigmoid_backward(d * (before - new), z)
        inputs = torch.cat([d_reset, d_update, d_new], dim=-1)
        return inputs, torch.cat([d_reset, d_update, d_new * r], dim=-1), d_before, d_cell


@dataclass(frozen=True, slots=True)
class RNNCell:
    """h ← tanh(x + h_rec), or the same with ReLU."""

    squash: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor, Tensor], Tensor]  # (errors, outputs)
    gates: int = 1

    def forward(self, gates: Tensor, recurrent: Tensor, before: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take one step."""
        return self.squash(gates.add_(recurrent)), cell, cell

    def backward(
        self, d: Tensor, d_cell: Tensor, gates: Tensor, kept: tuple[Tensor, Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the errors."""
        below = self.derivative(d, kept[1])
        return below, below, torch.zeros((), dtype=d.dtype), d_cell


class _Level(torch.autograd.Function):
    """One layer over time: inputs' share (rows, batch, time, gates) to outputs (rows, batch, time, size), last cell."""

    @staticmethod
    def forward(ctx: Any, share: Tensor, token: Tensor, run: Pass, cell: Cell, layer: Linear) -> tuple[Tensor, Tensor]:
        gates = share.permute(2, 0, 1, 3).contiguous()
        hidden = gates.new_zeros(*gates.shape[1:3], gates.shape[3] // cell.gates)
        state, kept = hidden, []
        outputs = gates.new_empty(len(gates) + 1, *hidden.shape)
        outputs[0] = hidden
        for t in range(len(gates)):
            recurrent = layer.outputs(run.params, outputs[t])
            hidden, after, more = cell.forward(gates[t], recurrent, outputs[t], state)
            kept.append((state, more))
            outputs[t + 1], state = hidden, after
        ctx.kept = (gates, outputs, kept, run, cell, layer)
        return outputs[1:].permute(1, 2, 0, 3), state

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        gates, outputs, kept, run, cell, layer = ctx.kept
        above = grads[0].permute(2, 0, 1, 3)
        d_cell = grads[1]
        d_hidden = torch.zeros_like(outputs[0])
        of_inputs, of_recurrent = torch.empty_like(gates), torch.empty_like(gates)
        for t in range(len(gates) - 1, -1, -1):
            state, more = kept[t]
            parts = (outputs[t], outputs[t + 1], state, more)
            of_inputs[t], back, direct, d_cell = cell.backward(above[t] + d_hidden, d_cell, gates[t], parts)
            of_recurrent[t] = back
            d_hidden = layer.below(run.params, back) + direct
        before, errors = (value.transpose(0, 1).flatten(1, 2) for value in (outputs[:-1], of_recurrent))
        run.sink.linear(layer, before, errors)
        return of_inputs.permute(1, 2, 0, 3), None, None, None, None


def _cell_of(layer: nn.RNNBase) -> Cell:
    if isinstance(layer, nn.LSTM):
        return LSTMCell()
    if isinstance(layer, nn.GRU):
        return GRUCell()
    if layer.mode == "RNN_RELU":
        return RNNCell(torch.relu_, lambda d, out: aten.threshold_backward(d, out, 0))
    return RNNCell(torch.tanh_, lambda d, out: aten.tanh_backward(d, out))


def recurrent(layer: nn.RNNBase, own: dict[str, int], stored: Stored) -> Op:
    """Return an LSTM, a GRU or a plain recurrent layer; raises CannotLower for what is not known of them."""
    if layer.bidirectional or layer.proj_size or (layer.dropout and layer.training):
        raise CannotLower("a recurrent layer that is bidirectional, projected or with dropout")
    cell = _cell_of(layer)
    inputs = [
        LinearOp(Linear(own[f"weight_ih_l{at}"], own.get(f"bias_ih_l{at}"), True)) for at in range(layer.num_layers)
    ]
    levels = [Linear(own[f"weight_hh_l{at}"], own.get(f"bias_hh_l{at}"), True) for at in range(layer.num_layers)]

    def run_through(run: Pass, h: Tensor) -> tuple[Tensor, Any]:
        if h.dim() != 3:
            raise CannotLower("a recurrent layer on one sequence without a batch")
        h = h if layer.batch_first else h.transpose(0, 1)
        last, cells = [], []
        for project, level in zip(inputs, levels, strict=True):
            share = run.by_row(project(run, h))
            out, state = _Level.apply(share, run.token, run, cell, level)  # type: ignore[no-untyped-call]
            h = out.flatten(0, 1)
            last.append(h[:, -1])
            cells.append(state.flatten(0, 1))
        states: Any = torch.stack(last)
        if isinstance(layer, nn.LSTM):
            states = (states, torch.stack(cells))
        return h if layer.batch_first else h.transpose(0, 1), states

    return run_through


RECURRENT: dict[type[nn.Module], Callable[[Any, dict[str, int], Stored], Op]] = {
    nn.LSTM: recurrent,
    nn.GRU: recurrent,
    nn.RNN: recurrent,
}
