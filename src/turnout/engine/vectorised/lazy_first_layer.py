"""The first layer of a plain network, trained without its weights.

A first layer's inputs are data: they are known before the first step. So its weights after t steps of SGD are a mix
of what is known, and of the small errors d_j (batch × outputs) that came back so far,

    W_t = a_t·W₀ + b_t·k + e_t·A + Σ_{j<t} c_tj·X_jᵀd_j

whatever the momentum, decay, offset k and pull towards A: these set the numbers a, b, e and c alone. Its outputs are

    X_t·W_t = a_t·(X_t·W₀) + b_t·(X_t·k) + e_t·(X_t·A) + Σ_{j<t} c_tj·(X_t·X_jᵀ)·d_j

A pull towards W₀ itself is part of a, and e is then zero. The products in brackets are taken for all steps at once. The
weights are written once, at the end, instead of read and written at every step: momentum and offsets cost no pass over
memory. It pays while a client's visits to samples, steps × batch, are few beside the layer's size, for the products
X·Xᵀ grow with their square.
"""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch
from torch import Tensor

from turnout.array_types import Floats, Ids
from turnout.engine.vectorised.scratch import Scratch

Pieces = Callable[[], Iterable[tuple[slice, Tensor]]]  # a stack, some rows at a time
BASE, OFFSET, ANCHOR, KNOWN = 0, 1, 2, 3  # columns of a mix: a, b and e; those of c follow
ROUNDING = 1e-12  # a factor that is zero but for rounding
MOST_VISITS = 256  # of a client: beyond this the products of all visits with all others are the larger part


def pays(inputs: int, outputs: int, visits: int) -> bool:
    """Whether a layer of this size is better not written at every step."""
    return visits <= min(MOST_VISITS, outputs, inputs)


def mixes(settings: Mapping[str, Floats], steps: int, has_offset: bool, has_anchor: bool = False) -> Floats:
    """Return the numbers (a, b, e, c) after each step, as (steps + 1, rows, 3 + steps); one row where all are alike.

    Args:
        settings: the solver's, one value per row.
        steps: local steps.
        has_offset: whether an offset is subtracted from gradients.
        has_anchor: whether a pull is towards an anchor; False: towards the start.
    """
    alike = all((values == values[0]).all() for values in settings.values())
    now = {name: values[: 1 if alike else None, None] for name, values in settings.items()}
    rows, towards = len(now["lr"]), ANCHOR if has_anchor else BASE
    x, v = np.zeros((rows, KNOWN + steps)), np.zeros((rows, KNOWN + steps))
    x[:, BASE] = 1.0
    decay, strength = now.get("weight_decay", 0.0), now.get("prox_strength", 0.0)
    points = [x]
    for step in range(steps):
        rate = now["lr"] * now["lr_decay"] ** step if "lr_decay" in now else now["lr"]
        g = decay * x
        g[:, KNOWN + step] += 1.0
        g[:, OFFSET] -= has_offset
        v = v * now.get("momentum", 0.0) + g
        direction = g + now["momentum"] * v if "nesterov" in now else v
        x = (1.0 - rate * strength) * x - rate * direction
        x[:, towards] += (rate * strength)[:, 0] if isinstance(strength, np.ndarray) else 0.0
        points.append(x)
    return np.stack(points)


class FirstLayer:
    """The first layer's outputs, step by step, for a block of rows, and its change at the end."""

    def __init__(
        self,
        x: Tensor,
        base: Tensor,
        offset: Pieces | None,
        anchor: Tensor | None,
        mixed: Floats,
        steps: Ids,
        scratch: Scratch,
    ) -> None:
        """Take all products that are known now.

        Args:
            x: the inputs of all visits, (rows, visits, inputs), step after step.
            base: W₀, (rows or 1, inputs, outputs).
            offset: k, (rows, inputs, outputs), in pieces; None where there is none.
            anchor: A, (rows or 1, inputs, outputs); None where there is no pull, or one towards W₀.
            mixed: from `mixes`.
            steps: of each row.
            scratch: where the block's buffers come from.
        """
        self.x, self.base, self.offset, self.anchor = x, base, offset, anchor
        self.rows, self.visits = x.shape[:2]
        outputs = base.shape[2]
        self.width = self.visits // (len(mixed) - 1)
        self.mixed = torch.as_tensor(mixed, dtype=x.dtype, device=x.device)
        self.last = mixed[steps, np.arange(self.rows) % mixed.shape[1]]  # of each row's last step, (rows, 3 + steps)
        self.known = self._known(mixed, scratch)
        alike = scratch.take("first products", (self.rows, self.visits, self.visits), x)
        self.products = torch.bmm(x, x.transpose(1, 2), out=alike)
        self.errors = scratch.take("first errors", (self.rows, self.visits, outputs), x)
        if steps.min() < len(mixed) - 1:
            self.errors.zero_()
        self.step = 0

    def _known(self, mixed: Floats, scratch: Scratch) -> Tensor:
        """Return a_t·(X_t·W₀) + b_t·(X_t·k) + e_t·(X_t·A) of all steps."""
        outputs = self.base.shape[2]
        known = self._times(self.base, scratch.take("first known", (self.rows, self.visits, outputs), self.x))
        of_base, of_offset, of_anchor = (mixed[:-1, :, part].T.repeat(self.width, 1) for part in range(KNOWN))
        if (of_base != 1.0).any():
            known.mul_(self._shaped(of_base))
        if self.visits == self.width:  # neither offset nor anchor is felt before the second step
            return known
        later = slice(self.width, None)
        if self.offset is not None:
            shares = self._shaped(of_offset[:, later]).expand(self.rows, -1, 1)
            for rows, k in self.offset():
                product = scratch.take("first from offset", (len(k), self.visits - self.width, outputs), k)
                torch.bmm(self.x[rows, later], k, out=product)
                known[rows, later].addcmul_(product, shares[rows])
        if self.anchor is not None:
            product = scratch.take("first from anchor", (self.rows, self.visits, outputs), self.x)
            known.addcmul_(self._times(self.anchor, product), self._shaped(of_anchor))
        return known

    def _times(self, weights: Tensor, out: Tensor) -> Tensor:
        """Write X·W of all visits to `out` and return it."""
        inputs, outputs = weights.shape[1:]
        if len(weights) == 1:
            torch.mm(self.x.view(-1, inputs), weights[0], out=out.view(-1, outputs))
        else:
            torch.bmm(self.x, weights, out=out)
        return out

    def outputs(self, active: int, bias: Tensor | None) -> Tensor:
        """Return X_t·W_t + bias of the rows still at work."""
        t, begin, end = self.step, self.step * self.width, (self.step + 1) * self.width
        mix = self.mixed[t, :active] if self.mixed.shape[1] > 1 else self.mixed[t]
        out = self.known[:active, begin:end]
        if bias is not None:
            out = out + bias.unsqueeze(1)
        if not t:
            return out.clone() if bias is None else out
        weights = mix[:, KNOWN : KNOWN + t].repeat_interleave(self.width, 1).unsqueeze(1)
        return torch.baddbmm(out, self.products[:active, begin:end, :begin] * weights, self.errors[:active, :begin])

    def take(self, errors: Tensor) -> None:
        """Take the errors of this step."""
        begin = self.step * self.width
        self.errors[: len(errors), begin : begin + self.width] = errors
        self.step += 1

    def change(self, out: Tensor, scale: Floats | None = None) -> Tensor:
        """Write W₀ − W_T of every row into `out`, (rows, inputs, outputs); with a scale s, s·(W₀ − W_T) + k."""
        shares = -self.last
        shares[:, BASE] += 1.0
        if scale is not None:
            shares *= scale[:, None]
            shares[:, OFFSET] += 1.0
        return self._mixed(shares, out)

    def end(self, out: Tensor) -> Tensor:
        """Write W_T of every row into `out`, (rows, inputs, outputs)."""
        return self._mixed(self.last, out)

    def _mixed(self, shares: Floats, out: Tensor) -> Tensor:
        """Write a mix of W₀, k, A and the errors to `out`; the errors are used up."""
        of_base, of_offset, of_anchor = (shares[:, part, None] for part in range(KNOWN))
        errors = self.errors.mul_(self._shaped(shares[:, KNOWN:].repeat(self.width, 1)))
        torch.bmm(self.x.transpose(1, 2), errors, out=out)
        if (of_base == 1.0).all():
            out.add_(self.base)
        elif of_base.any():
            out.addcmul_(self.base.expand_as(out), self._shaped(of_base))
        if self.anchor is not None:
            out.addcmul_(self.anchor.expand_as(out), self._shaped(of_anchor))
        if self.offset is not None and (abs(of_offset) > ROUNDING).any():  # s·(W₀ − W_T) has it once, without decay
            felt = self._shaped(of_offset)
            for rows, k in self.offset():
                out[rows].addcmul_(k, felt[rows])
        return out

    def _shaped(self, values: Floats) -> Tensor:
        return torch.as_tensor(values, dtype=self.x.dtype, device=self.x.device).unsqueeze(2)
