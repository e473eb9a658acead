"""Plain networks by hand: flatten, linear layers with or without ReLU, cross-entropy at the end.

The commonest small models need no autograd at all: one forward and one backward pass written out, with nothing
between the matrix products but what they need. Anything else is lowered or mapped.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from turnout.engine.vectorised.layers import CannotLower, Linear, Sink
from turnout.engine.vectorised.lazy_first_layer import FirstLayer
from turnout.engine.vectorised.loss_accumulator import LossAccumulator
from turnout.engine.vectorised.lowering import Batch, linear_of, sequential_layers
from turnout.losses import Loss, cross_entropy
from turnout.models.layout import Layout


def dense_layers(module: nn.Module, layout: Layout, loss: Loss) -> list[Linear] | None:
    """Return the linear layers of a plain network that ends in cross-entropy; None for any other module."""
    chain = sequential_layers(module)
    if loss is not cross_entropy or chain is None:
        return None
    layers: list[Linear] = []
    for place, (name, layer) in enumerate(chain):
        if type(layer) is nn.Flatten and place == 0 and (layer.start_dim, layer.end_dim) == (1, -1):
            continue
        if type(layer) is nn.Linear:
            after = chain[place + 1][1] if place + 1 < len(chain) else None
            try:
                layers.append(linear_of(name, layer, layout, type(after) is nn.ReLU))
            except CannotLower:
                return None
        elif type(layer) is not nn.ReLU or type(chain[place - 1][1]) is not nn.Linear or place == 0:
            return None
    return layers if layers and not layers[-1].rectify else None


class Dense:
    """A plain network over a stack of rows."""

    def __init__(self, layers: Sequence[Linear]) -> None:
        self.layers = layers
        self.minus_one = torch.full((1, 1, 1), -1.0)

    @torch.no_grad()
    def run(
        self,
        params: Sequence[Tensor],
        batch: Batch,
        sink: Sink,
        loss_sums: LossAccumulator,
        first: FirstLayer | None = None,
    ) -> None:
        """Give every row's gradients to the sink and its loss to the tally; `first` stands in for the first layer."""
        x, y, weights = batch
        h = x.flatten(2) if x.dim() > 3 else x
        seen = []
        for place, layer in enumerate(self.layers):
            seen.append(h)
            if first is not None and place == 0:
                h = first.outputs(len(y), None if layer.bias is None else params[layer.bias])
            else:
                h = layer.outputs(params, h)
            if layer.rectify:
                h.relu_()
        errors = self._errors(h, y, weights, loss_sums)
        for place in range(len(self.layers) - 1, -1, -1):
            layer, inputs = self.layers[place], seen[place]
            below = layer.below(params, errors) if place else None
            if first is not None and place == 0:
                first.take(errors)
                if layer.bias is not None:
                    sink.plain(layer.bias, errors.sum(1))
                return
            sink.linear(layer, inputs, errors)
            if below is not None:
                rectified = self.layers[place - 1].rectify
                errors = torch.ops.aten.threshold_backward(below, inputs, 0) if rectified else below

    def _errors(self, out: Tensor, y: Tensor, weights: Tensor | None, loss_sums: LossAccumulator) -> Tensor:
        """Return softmax(out) − onehot(y), scaled by 1/batch or by the weights; the losses go to the tally.

        Written out, because with few classes torch's own softmax and cross-entropy take several times as long.
        """
        if self.minus_one.dtype != out.dtype or self.minus_one.device != out.device:
            self.minus_one = self.minus_one.to(out)
        out -= out.amax(2, keepdim=True)
        right = out.gather(2, y.unsqueeze(2))
        errors = out.exp_()
        total = errors.sum(2, keepdim=True)
        loss_sums.add_samples(total, right, weights)
        errors.div_(total)
        errors.scatter_add_(2, y.unsqueeze(2), self.minus_one.expand(*y.shape, 1))
        return errors.div_(y.shape[1]) if weights is None else errors.mul_(weights.unsqueeze(2))
