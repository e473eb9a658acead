"""Batch normalisation over a stack of rows: each row has statistics of its own, and padding is left out of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from turnout.engine.vectorised.layers import BatchOfOne, CannotLower, Pass

BATCH_NORMS: tuple[type[nn.Module], ...] = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _Normalise(torch.autograd.Function):
    """(h − mean)/√(var + ε) of each row and channel; h is (rows, batch, channels, places), counts (rows, 1, 1, 1)."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, counts: Tensor, mask: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        inside = h if mask is None else h * mask
        mean = inside.sum((1, 3), keepdim=True) / counts
        centred = h - mean if mask is None else (h - mean).mul_(mask)
        var = centred.square().sum((1, 3), keepdim=True) / counts
        scale = (var + eps).rsqrt_()
        out = centred.mul_(scale)
        ctx.save_for_backward(out, scale, counts)
        ctx.mask = mask
        ctx.mark_non_differentiable(mean, var)
        return out, mean, var

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        out, scale, counts = ctx.saved_tensors
        d = grads[0]
        mean = d.sum((1, 3), keepdim=True) / counts
        share = (d * out).sum((1, 3), keepdim=True) / counts
        below = torch.addcmul(d - mean, out, share, value=-1.0).mul_(scale)
        return below if ctx.mask is None else below.mul_(ctx.mask), None, None, None


@dataclass(frozen=True, slots=True)
class BatchNormOp:
    """Batch normalisation as it trains: by the batch's own statistics, which it adds to the running ones."""

    weight: int | None
    bias: int | None
    mean: int | None  # buffer of the running mean, and of the variance
    var: int | None
    eps: float
    momentum: Callable[[int], float]  # the share of a new batch in the running statistics at a step

    def __call__(self, run: Pass, h: Tensor) -> Tensor:
        """Return the normalised inputs, times the row's weight plus its bias."""
        by_row = run.by_row(h)
        stack = by_row.reshape(*by_row.shape[:3], -1)
        mask, counts = self._counts(run, stack)
        out, mean, var = _Normalise.apply(stack, counts, mask, self.eps)  # type: ignore[no-untyped-call]
        if self.mean is not None and self.var is not None:
            share = self.momentum(run.step.number)
            n = counts[:, :, 0, 0]
            run.step.buffers[self.mean][: run.rows].lerp_(mean[:, 0, :, 0], share)
            run.step.buffers[self.var][: run.rows].lerp_(var[:, 0, :, 0] * (n / (n - 1)), share)
        if self.weight is not None:
            out = out * run.leaf(self.weight)[:, None, :, None]
        if self.bias is not None:
            out = out + run.leaf(self.bias)[:, None, :, None]
        result: Tensor = out.reshape(h.shape)
        return result

    def _counts(self, run: Pass, stack: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the mask of samples that are not padding, and how many values each channel of a row has."""
        rows, batch, _, places = stack.shape
        if run.weights is None:
            mask, counts = None, stack.new_full((rows, 1, 1, 1), float(batch * places))
        else:
            mask = (run.weights > 0).to(stack)[:, :, None, None]
            counts = mask.sum(1, keepdim=True) * places
        if float(counts.min()) < 2:
            raise BatchOfOne(int(counts.flatten().argmin()))
        return mask, counts


def batch_norm(layer: Any, own: dict[str, int], buffers: dict[str, int]) -> BatchNormOp:
    """Return a layer of batch normalisation; raises CannotLower for one that does not train as usual."""
    if not layer.training:
        raise CannotLower("batch normalisation by running statistics")
    first = 0 if layer.num_batches_tracked is None else int(layer.num_batches_tracked)

    def momentum(step: int) -> float:
        return 1.0 / (first + step + 1) if layer.momentum is None else float(layer.momentum)

    tracked = layer.running_mean is not None
    return BatchNormOp(
        own.get("weight"),
        own.get("bias"),
        buffers["running_mean"] if tracked else None,
        buffers["running_var"] if tracked else None,
        layer.eps,
        momentum,
    )
