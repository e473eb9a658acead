"""Plain networks by hand: linear layers with activations and dropout in a row, cross-entropy at the end.

The commonest small models need no autograd at all: one forward and one backward pass written out, with nothing
between the matrix products but what they need. Anything else is lowered or mapped.
"""

from collections.abc import Sequence

from torch import Tensor

from turnout.engine.vectorised.layers import DropoutOp, Linear, LinearOp, Pass, Sink, Step
from turnout.engine.vectorised.loss_accumulator import LossAccumulator
from turnout.engine.vectorised.lowering import Batch, Lowered, cross_entropy_errors
from turnout.losses import cross_entropy


def is_plain(program: Lowered) -> bool:
    """Whether a lowered module is a row of linear layers and dropout that ends in cross-entropy."""
    chain = program.instructions
    if program.loss is not cross_entropy or not chain or len(program.given) != 1:
        return False
    places = [program.given[0], *(each.out for each in chain)]
    last = chain[-1].op
    return (
        all(isinstance(each.op, LinearOp | DropoutOp) for each in chain)
        and all(each.inputs == (before,) for each, before in zip(chain, places[:-1], strict=True))
        and program.result == places[-1]
        and isinstance(last, LinearOp)
        and last.layer.activation is None
    )


class Dense:
    """A plain network over a stack of rows."""

    def __init__(self, program: Lowered) -> None:
        self.lowered, self.is_random, self.first_layer = program, program.is_random, program.first_layer
        self.own_buffers = program.own_buffers
        self.ops = [each.op for each in program.instructions if isinstance(each.op, LinearOp | DropoutOp)]

    def inputs(self, x: Tensor) -> list[Tensor]:
        """Return what the first layer takes of samples."""
        return self.lowered.inputs(x)

    def run(self, params: Sequence[Tensor], batch: Batch, sink: Sink, loss_sums: LossAccumulator, step: Step) -> None:
        """Give every row's gradients to the sink and its loss to the tally; nothing here asks for autograd."""
        x, y, weights = batch
        run = Pass(params, sink, x, y.shape[0], weights, step)
        h = self.inputs(x.flatten(0, 1))[0]
        h = h.view(*y.shape, h.shape[-1])
        kept: list[tuple[Tensor, Tensor]] = []  # a layer's inputs and what its activation needs, or a mask
        for op in self.ops:
            if isinstance(op, DropoutOp):
                mask = op.mask(run, h.flatten(0, 1)).view(h.shape)
                kept.append((mask, mask))
                h = h * mask
                continue
            inputs, layer = h, op.layer
            h = self._outputs(run, op, h)
            of_activation = h
            if layer.activation is not None:
                h, of_activation = layer.activation.apply(h)
            kept.append((inputs, of_activation))
        self._backward(run, cross_entropy_errors(h, y, weights, loss_sums), kept)

    def _outputs(self, run: Pass, op: LinearOp, h: Tensor) -> Tensor:
        layer = op.layer
        if run.step.first is None or not op.is_first:
            return layer.outputs(run.params, h)
        return run.step.first.outputs(run.rows, None if layer.bias is None else run.params[layer.bias])

    def _backward(self, run: Pass, errors: Tensor, kept: Sequence[tuple[Tensor, Tensor]]) -> None:
        for place in range(len(self.ops) - 1, -1, -1):
            op, (inputs, of_activation) = self.ops[place], kept[place]
            if isinstance(op, DropoutOp):
                errors = errors * inputs
                continue
            layer: Linear = op.layer
            if layer.activation is not None:
                errors = layer.activation.backward(errors, of_activation)
            below = layer.below(run.params, errors) if place else errors
            if run.step.first is not None and op.is_first:
                run.step.first.take(errors)
                if layer.bias is not None:
                    run.sink.plain(layer.bias, errors.sum(1))
                return
            run.sink.linear(layer, inputs, errors)
            errors = below
