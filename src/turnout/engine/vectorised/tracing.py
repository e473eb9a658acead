"""Tracing: a module as a list of instructions, by torch.fx.

Values of samples are (rows · batch, …), parameters used by hand (rows, …), and the rest are constants. What has no
trained parameters runs as it is written; layers with parameters come from the tables of lowered layers.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from turnout.engine.dropout import BY_ENTRY, MODULES, Dropout
from turnout.engine.vectorised.activations import ACTIVATIONS, FUNCTIONS, Activation
from turnout.engine.vectorised.attention import ATTENTION
from turnout.engine.vectorised.frozen_linear import frozen
from turnout.engine.vectorised.layers import LAYERS, CannotLower, DropoutOp, LinearOp, Op, Pass
from turnout.engine.vectorised.normalisation import BATCH_NORMS, batch_norm
from turnout.engine.vectorised.recurrent import RECURRENT
from turnout.models.layout import Layout

TABLE = {**LAYERS, **RECURRENT, **ATTENTION}
BROADCAST = (operator.add, operator.sub, operator.mul, operator.truediv, torch.add, torch.sub, torch.mul, torch.div)
PRODUCTS = (operator.matmul, torch.matmul, "matmul")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation: where its inputs and output live."""

    out: int
    op: Op
    inputs: tuple[int, ...]
    of_data: bool  # whether it depends on samples and constants alone
    has_frozen: bool = False  # whether it has frozen parameters: worth doing once and not at every step


class Compiler:
    """One module on its way to a list of instructions."""

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        try:
            self.graph = fx.Tracer().trace(module)
        except Exception as error:  # whatever tracing trips over, the module is not lowered
            raise CannotLower(str(error)) from error
        self.module, self.layout = module, layout
        self.modules = dict(module.named_modules(remove_duplicate=False))
        self.buffers = {slot.name: at for at, slot in enumerate(layout.buffers)}
        self.used: set[int] = set()  # slots of which a layer has the gradient to itself
        self.numbers: dict[fx.Node, int] = {}
        self.kinds: dict[fx.Node, str] = {}  # "sample": (rows · batch, …); "row": (rows, …); "constant"
        self.program: dict[int, Instruction] = {}
        self.constants: dict[int, Any] = {}
        self.dropouts = 0

    def compile(self) -> tuple[list[Instruction], int]:
        """Return the instructions, and where the result lives; raises CannotLower and nothing else."""
        try:
            return self._compile()
        except CannotLower:
            raise
        except Exception as error:  # an operation used in a way that is not known here
            raise CannotLower(str(error)) from error

    def _compile(self) -> tuple[list[Instruction], int]:
        for node in self.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node)
            elif node.op == "output":
                if not isinstance(node.args[0], fx.Node) or self.kinds[node.args[0]] != "sample":
                    raise CannotLower("outputs other than one value per sample")
                return list(self.program.values()), self.numbers[node.args[0]]
            elif not self._fuse(node):
                self._lower(node)
        raise CannotLower("no output")

    def _placeholder(self, node: fx.Node) -> None:
        if not self.numbers:
            self.numbers[node], self.kinds[node] = 0, "sample"
        elif node.users:
            raise CannotLower("more than one input")

    def _fuse(self, node: fx.Node) -> bool:
        """Let a linear layer run the activation that alone follows it; return whether this is one."""
        activation = self._activation(node)
        if activation is None or self.kinds[node.all_input_nodes[0]] != "sample":
            return False
        number = self.numbers[node.all_input_nodes[0]]
        linear = self.program.get(number)
        if linear is None or not isinstance(linear.op, LinearOp) or linear.op.layer.activation is not None:
            return False
        if len(node.all_input_nodes[0].users) != 1:
            return False
        self.program[number] = replace(linear, op=linear.op.followed_by(activation))
        self.numbers[node], self.kinds[node] = number, "sample"
        return True

    def _activation(self, node: fx.Node) -> Activation | None:
        if len(node.all_input_nodes) != 1:
            return None
        if node.op == "call_module":
            layer = self.modules[str(node.target)]
        elif node.op in ("call_function", "call_method") and node.target in FUNCTIONS:
            try:
                layer = FUNCTIONS[node.target](*node.args[1:], **node.kwargs)
            except (TypeError, AssertionError):  # arguments of its own: it runs as it is written
                return None
        else:
            return None
        return ACTIVATIONS[type(layer)](layer) if type(layer) in ACTIVATIONS else None

    def _lower(self, node: fx.Node) -> None:
        op, kind, has_frozen = self._operation(node)
        inputs = tuple(self.numbers[each] for each in node.all_input_nodes)
        number = len(self.numbers)
        self.numbers[node], self.kinds[node] = number, kind
        if isinstance(op, _AsWritten) and all(at in self.constants for at in inputs):
            self.constants[number] = op(None, *(self.constants[at] for at in inputs))
            return
        has_frozen |= any(at in self.constants for at in inputs)
        of_data = isinstance(op, _AsWritten) and all(
            at == 0 or at in self.constants or self.program[at].of_data for at in inputs
        )
        self.program[number] = Instruction(number, op, inputs, of_data, has_frozen)

    def _operation(self, node: fx.Node) -> tuple[Op, str, bool]:
        """Return a node's operation, the kind of its value, and whether it has frozen parameters."""
        if node.op == "get_attr":
            return self._attribute(str(node.target))
        kinds = {self.kinds[each] for each in node.all_input_nodes}
        if node.op == "call_module":
            if "row" in kinds:
                raise CannotLower(f"{node.target} on a parameter")
            return self._layer(node, str(node.target))
        if node.op not in ("call_function", "call_method"):
            raise CannotLower(f"{node.op} {node.target}")
        if node.target in BY_ENTRY and node.op == "call_function":
            return self._dropout_function(node), "sample", False
        if "row" in kinds:
            return (*self._with_parameters(node, kinds), False)
        return _AsWritten(node, None), "sample" if "sample" in kinds else "constant", False

    def _attribute(self, name: str) -> tuple[Op, str, bool]:
        slot = self.layout.numbers.get(name)
        if slot is not None:
            if slot in self.used:
                raise CannotLower(f"{name} is used twice")
            stored = self.layout.slots[slot]
            if stored.transposed:
                return lambda run: run.leaf(slot).transpose(1, 2), "row", False
            return lambda run: run.leaf(slot).view(-1, *stored.shape), "row", False
        if name in self.buffers:
            at = self.buffers[name]
            return lambda run: run.step.buffers[at][0], "constant", False
        value = operator.attrgetter(name)(self.module)
        if isinstance(value, nn.Parameter) and value.requires_grad:
            raise CannotLower(f"{name} is another parameter, too")
        return _Constant(value), "constant", False

    def _layer(self, node: fx.Node, name: str) -> tuple[Op, str, bool]:
        layer = self.modules[name]
        if type(layer) in MODULES:
            rate: Any = layer.p
            return self._dropout(rate, layer.training, MODULES[type(layer)], node), "sample", False
        parameters = dict(layer.named_parameters())
        own = {key: self.layout.numbers.get(f"{name}.{key}") for key in parameters}
        if isinstance(layer, BATCH_NORMS):
            buffers = {
                key: self.buffers[f"{name}.{key}"]
                for key in dict(layer.named_buffers())
                if f"{name}.{key}" in self.buffers
            }
            return batch_norm(layer, self._claim(name, own), buffers), "sample", False
        if any(b.is_floating_point() for b in layer.buffers()):
            raise CannotLower(f"{name} has buffers")
        if not any(parameter.requires_grad for parameter in parameters.values()):
            return _AsWritten(node, frozen(layer)), "sample", bool(parameters)
        if type(layer) not in TABLE:
            raise CannotLower(f"{name} is a {type(layer).__name__}")
        op = TABLE[type(layer)](layer, self._claim(name, own), lambda slot: self.layout.slots[slot].transposed)
        return (op if _has_one_input(node) else _Called(node, op)), "sample", False

    def _claim(self, name: str, own: dict[str, int | None]) -> dict[str, int]:
        """Return the slots of a layer's parameters, which nobody else may have."""
        slots = {key: slot for key, slot in own.items() if slot is not None}
        if len(slots) < len(own) or self.used & set(slots.values()) or self._is_elsewhere(name):
            raise CannotLower(f"{name} has a parameter that is frozen, or used elsewhere, too")
        self.used |= set(slots.values())
        return slots

    def _is_elsewhere(self, name: str) -> bool:
        return any(each.op == "get_attr" and str(each.target).startswith(f"{name}.") for each in self.graph.nodes)

    def _dropout_function(self, node: fx.Node) -> Op:
        def bound(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> tuple[float, bool]:
            return p, training

        p, training = bound(*node.args, **node.kwargs)  # type: ignore[arg-type]
        return self._dropout(p, training, BY_ENTRY[node.target], node)  # type: ignore[index]

    def _dropout(self, p: float, training: bool, by_entry: bool, node: fx.Node) -> Op:
        if not training or p == 0:
            return lambda run, h: h
        if not isinstance(p, float | int) or len(node.all_input_nodes) != 1:
            raise CannotLower("dropout with a rate that is computed")
        self.dropouts += 1
        return DropoutOp(Dropout(p, by_entry, self.dropouts - 1))

    def _with_parameters(self, node: fx.Node, kinds: set[str]) -> tuple[Op, str]:
        """Return the operation of a function of parameters that are used by hand."""
        target, inputs = node.target, node.all_input_nodes
        if "sample" not in kinds:
            if target in (*BROADCAST, operator.neg, *PRODUCTS) and not node.kwargs:
                return _AsCalled(node), "row"
            is_transposed = target in ("t", torch.t) or (target is getattr and node.args[1] == "T")
            if is_transposed:
                return lambda run, p: p.transpose(1, 2), "row"
        elif len(inputs) == 2 and not node.kwargs and len(node.args) == 2:
            sample_first = self.kinds[inputs[0]] == "sample"
            if target in BROADCAST and node.args == tuple(inputs):
                return _broadcast(target, sample_first), "sample"
            if target in PRODUCTS and sample_first:
                return self._product(node, inputs[1], True), "sample"
        if target is F.linear and len(inputs) == len(node.args) and not node.kwargs:
            return self._product(node, inputs[1], False), "sample"
        raise CannotLower(f"the function {target} of a parameter")

    def _product(self, node: fx.Node, weight: fx.Node, is_plain: bool) -> Op:
        """Return samples times a parameter, or its transpose, plus a bias where there is one."""
        if [self.kinds[each] for each in node.all_input_nodes] not in (["sample", "row"], ["sample", "row", "row"]):
            raise CannotLower("a linear function of other things than samples and parameters")

        def product(run: Pass, h: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
            if w.dim() != 3:
                raise CannotLower("a product with a parameter that is no matrix")
            out = torch.bmm(h.reshape(run.rows, -1, h.shape[-1]), w if is_plain else w.transpose(1, 2))
            out = out if b is None else out + b.unsqueeze(1)
            return out.view(*h.shape[:-1], out.shape[2])

        return product


def _broadcast(target: Any, sample_first: bool) -> Op:
    """Return a function of samples and a parameter that has the shape of a sample, or broadcasts to it."""

    def apply(run: Pass, a: Tensor, b: Tensor) -> Tensor:
        h, p = (a, b) if sample_first else (b, a)
        shape, dims = p.shape[1:], h.dim() - 1
        if len(shape) == dims + 1 and shape[0] == 1:  # a batch of one, for all samples
            shape = shape[1:]
        if len(shape) > dims:
            raise CannotLower("a parameter of more dimensions than a sample")
        p = p.reshape(run.rows, 1, *[1] * (dims - len(shape)), *shape)
        out: Tensor = target(run.by_row(h), p) if sample_first else target(p, run.by_row(h))
        return out.flatten(0, 1)

    return apply


def _has_one_input(node: fx.Node) -> bool:
    return len(node.args) == 1 and isinstance(node.args[0], fx.Node) and not node.kwargs


class _AsCalled:
    """Calls a function or method with the arguments that the graph has, constants and nested ones included."""

    def __init__(self, node: fx.Node) -> None:
        self.args, self.kwargs, self.nodes = node.args, node.kwargs, node.all_input_nodes
        self.target: Any = node.target
        self.is_method = node.op == "call_method"
        self.is_simple = list(node.args) == self.nodes and not node.kwargs

    def __call__(self, run: Pass | None, *values: Any) -> Any:
        """Return what it returns."""
        args, kwargs = (values, {}) if self.is_simple else self._filled(values)
        if self.is_method:
            return getattr(args[0], self.target)(*args[1:], **kwargs)
        return self.target(*args, **kwargs)

    def _filled(self, values: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments with values in place of nodes."""
        given = dict(zip(self.nodes, values, strict=True))
        filled: Any = fx.node.map_arg((self.args, self.kwargs), lambda node: given[node])
        return filled[0], filled[1]


class _AsWritten(_AsCalled):
    """A function, method or layer without trained parameters, run on all rows' samples at once as it is written."""

    def __init__(self, node: fx.Node, layer: nn.Module | None) -> None:
        super().__init__(node)
        if layer is not None:
            self.target = layer


class _Constant(_AsWritten):
    """A frozen parameter, or a buffer that is not averaged."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, run: Pass | None, *values: Any) -> Any:
        """Return the value."""
        return self.value


class _Called(_AsCalled):
    """A lowered layer with more arguments than its inputs."""

    def __init__(self, node: fx.Node, op: Op) -> None:
        super().__init__(node)
        self.target = op

    def __call__(self, run: Pass | None, *values: Any) -> Any:
        """Return what it returns."""
        args, kwargs = self._filled(values)
        return self.target(run, *args, **kwargs)
