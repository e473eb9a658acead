"""Unit groups: which units of a model's layers belong together, so that they are kept or cut together.

Intuition: mark a unit of a layer with NaN and see which inputs of the next layers become NaN.

Every layer with parameters is a barrier: what arrives at its inputs is noted, and its outputs are those of one pass
without marks. A unit of one layer thus marks the inputs of the layers directly behind it, through activations, pooling,
flattening, additions and concatenations, whatever the module's code is, and no layer is computed more than once.

Units are told apart by their binary digits: two passes per digit, for all layers together. Which layer a mark comes
from takes one pass per layer. That is enough if every input depends on one unit, or on units of the same number in
several layers, as where they are added up. Otherwise every layer is followed by itself, which says what is wrong.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnout.array_types import Ids


class CannotCutError(Exception):
    """A module cannot be cut; the text says why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of layer that can be cut."""

    units: Callable[[Any], int]  # number of outputs
    features: Callable[[Any], int]  # number of inputs that are somebody's units; 0: none
    dim: int  # of its input and its output: where features and units are
    is_norm: bool = False  # unit j is input j, normalised


def _single(layer: nn.LayerNorm) -> int:
    if len(layer.normalized_shape) != 1:
        raise CannotCutError("a LayerNorm over several dimensions")
    return int(layer.normalized_shape[0])


KINDS: dict[type[nn.Module], Kind] = {
    nn.Linear: Kind(lambda m: m.out_features, lambda m: m.in_features, -1),
    nn.Conv1d: Kind(lambda m: m.out_channels, lambda m: m.in_channels, -2),
    nn.Conv2d: Kind(lambda m: m.out_channels, lambda m: m.in_channels, -3),
    nn.LSTM: Kind(lambda m: m.hidden_size, lambda m: m.input_size, -1),
    nn.Embedding: Kind(lambda m: m.embedding_dim, lambda m: 0, -1),
    nn.GroupNorm: Kind(lambda m: m.num_channels, lambda m: m.num_channels, 1, is_norm=True),
    nn.LayerNorm: Kind(_single, _single, -1, is_norm=True),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the traced module. Group −1 is what is never cut: outputs, and inputs that are data."""

    name: str
    module: nn.Module
    group: int  # group of its units
    feature_groups: Ids  # group of each input
    feature_units: Ids  # which unit of its group each input comes from
    positions: int  # how often it is applied to a sample: pixels, characters


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The layers of a module and the sizes of its groups of units."""

    layers: tuple[Layer, ...]
    sizes: tuple[int, ...]  # number of units in each group


def anatomy_of(module: nn.Module, sample: Tensor) -> Anatomy:
    """Return the layers of a module and how their units are coupled; raise CannotCutError with the reason."""
    layers = dict(_layers(module))
    trace = Trace(module, sample)
    sources = trace.follow_all()
    joined = _Joined({name: KINDS[type(layer)].units(layer) for name, layer in layers.items()})
    for maker, reached in sources.items():
        if reached.at_output:
            joined.fix(maker)
        for reader, units in reached.units.items():
            joined.connect(maker, reader, units, KINDS[type(layers[reader])].is_norm)
    for name, layer in layers.items():
        if KINDS[type(layer)].is_norm and not any(name in reached.units for reached in sources.values()):
            joined.fix(name)
    numbers, sizes = joined.groups()
    made = []
    for name, layer in layers.items():
        groups = np.full(KINDS[type(layer)].features(layer), -1)
        units = np.zeros(len(groups), dtype=np.int64)
        for maker, reached in sources.items():
            if numbers[maker] >= 0 and name in reached.units:
                here = reached.units[name] >= 0
                if ((groups >= 0) & (groups != numbers[maker]) & here).any():
                    raise CannotCutError(f"{name} adds up units of different layers that are not cut together")
                groups[here], units[here] = numbers[maker], reached.units[name][here]
        made.append(Layer(name, layer, numbers[name], groups, units, trace.positions[name]))
    return Anatomy(tuple(made), sizes)


def _layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers that have parameters; raise where one cannot be cut."""
    if any(b.is_floating_point() for b in module.buffers()):
        name = next(name for name, b in module.named_buffers() if b.is_floating_point())
        raise CannotCutError(f"it has running statistics ({name}), which clients of different widths cannot share")
    owners: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            raise CannotCutError(f"its parameter {name} is frozen, and is not sent with the units that it belongs to")
        if id(parameter) in owners:
            raise CannotCutError(f"{owners[id(parameter)]} and {name} are one parameter that two layers share")
        owners[id(parameter)] = name
    for name, layer in module.named_modules():
        if not list(layer.parameters(recurse=False)):
            continue
        if type(layer) not in KINDS:
            raise CannotCutError(f"{name or 'it'} is a {type(layer).__name__}, a type of layer that cannot be cut")
        if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.groups != 1:
            raise CannotCutError(f"{name} is a convolution with groups")
        if isinstance(layer, nn.LSTM) and (layer.bidirectional or layer.proj_size):
            raise CannotCutError(f"{name} is a bidirectional or projecting LSTM")
        yield name, layer


@dataclass(slots=True)
class Reached:
    """Where the units of a layer arrive."""

    units: dict[str, Ids] = field(default_factory=dict)  # by layer: which unit each of its inputs is; −1: none
    at_output: bool = False  # of the whole module


Pass = tuple[dict[str, Tensor], bool]  # which inputs of each layer are marked, and whether an output is


class Trace:
    """A copy of the module, in which units can be marked and every layer notes which of its inputs are."""

    def __init__(self, module: nn.Module, sample: Tensor) -> None:
        self.module, self.sample = copy.deepcopy(module).eval(), sample
        self.positions: dict[str, int] = {}
        self.layers = dict(_layers(self.module))
        self.counts = {name: KINDS[type(layer)].units(layer) for name, layer in self.layers.items()}
        self._outputs: dict[str, Any] = {}  # of each layer, without marks
        self._marked: Mapping[str, Tensor] = {}  # by layer: which of its units
        self._seen: dict[str, Tensor] = {}
        for name, layer in self.layers.items():
            layer.forward = self._barrier(name, layer, layer.forward)
        self.run({})

    def follow_all(self) -> dict[str, Reached]:
        """Return where the units of each layer arrive."""
        digits = max((count - 1).bit_length() for count in self.counts.values())
        hits = [self._digit(digit, self.layers) for digit in range(max(1, digits))]
        found: dict[str, Ids] = {}
        for reader in self.layers:
            units, is_single = _decoded([(zeros[reader], ones[reader]) for (zeros, _), (ones, _) in hits])
            if not is_single:
                return {name: self.follow(name) for name in self.layers}
            found[reader] = units
        return {name: self._follow_whole(name, found) for name in self.layers}

    def follow(self, name: str) -> Reached:
        """Return where the units of a layer arrive."""
        hits = [self._digit(digit, [name]) for digit in range(max(1, (self.counts[name] - 1).bit_length()))]
        reached = Reached(at_output=any(zero_out or one_out for (_, zero_out), (_, one_out) in hits))
        for reader in self.layers:
            units, is_single = _decoded([(zeros[reader], ones[reader]) for (zeros, _), (ones, _) in hits])
            if not is_single:
                raise CannotCutError(f"an input of {reader} depends on several units of {name}")
            if (units >= 0).any():
                reached.units[reader] = units
        return reached

    def _follow_whole(self, name: str, found: Mapping[str, Ids]) -> Reached:
        """Return where the units of a layer arrive, if it is known which unit of any layer each input comes from."""
        seen, at_output = self.run({name: torch.ones(self.counts[name], dtype=torch.bool)})
        units = {reader: np.where(seen[reader].numpy(), found[reader], -1) for reader in self.layers}
        return Reached({reader: each for reader, each in units.items() if (each >= 0).any()}, at_output)

    def _digit(self, digit: int, names: Iterable[str]) -> tuple[Pass, Pass]:
        """Mark the units of these layers whose number has a 0 at this binary digit, and then those with a 1."""
        ones = {name: (torch.arange(self.counts[name]) >> digit & 1).bool() for name in names}
        return self.run({name: ~units for name, units in ones.items()}), self.run(ones)

    def run(self, marked: Mapping[str, Tensor]) -> Pass:
        """Mark these units; return which inputs of each layer are marked, and whether an output is."""
        self._marked, self._seen = marked, {}
        with torch.no_grad():
            out = self.module(self.sample)
        unused = self.layers.keys() - self._seen.keys()
        if unused:
            raise CannotCutError(f"{min(unused)} is not used")
        return self._seen, bool(torch.isnan(out).any())

    def _barrier(self, name: str, layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the place of a layer's own function."""
        kind = KINDS[type(layer)]

        def passed(*args: Any, **named: Any) -> Any:
            if name in self._seen:
                raise CannotCutError(f"{name} is used more than once in one pass")
            if not args or not isinstance(args[0], Tensor):
                raise CannotCutError(f"{name} gets its input by name")
            if any(bool(torch.isnan(x).any()) for x in _tensors((args[1:], named))):
                raise CannotCutError(f"{name} gets units of another layer beside its input")
            has_units = kind.features(layer) > 0
            marks = torch.isnan(args[0]).movedim(kind.dim, 0).flatten(1).any(1) if has_units else torch.zeros(0)
            self._seen[name] = marks.bool().cpu()
            if name not in self._outputs:
                out = forward(*args, **named)
                first = out[0] if isinstance(out, tuple) else out
                self._outputs[name] = out
                self.positions[name] = first.numel() // kind.units(layer) // len(self.sample)
            return self._with_marks(name, kind.dim)

        return passed

    def _with_marks(self, name: str, dim: int) -> Any:
        """Return the outputs of a layer, marked; they are copies, as the module may change them in place."""
        out = self._outputs[name]
        units = self._marked.get(name, torch.zeros(0)).nonzero()[:, 0]

        def mark(x: Tensor) -> Tensor:
            return x.index_fill(dim, units.to(x.device), torch.nan)

        if isinstance(out, tuple):  # an LSTM: outputs, and the last states of all its layers
            return mark(out[0]), tuple(mark(state) for state in out[1])
        return mark(out)


def _tensors(values: Any) -> Iterator[Tensor]:
    """Yield the tensors of real numbers in nested tuples, lists and dicts."""
    if isinstance(values, Tensor):
        yield from [values] if values.is_floating_point() else []
    elif isinstance(values, Mapping):
        yield from _tensors(tuple(values.values()))
    elif isinstance(values, tuple | list):
        for each in values:
            yield from _tensors(each)


def _decoded(digits: list[tuple[Tensor, Tensor]]) -> tuple[Ids, bool]:
    """Return which unit each input comes from, −1 for none, and whether no input comes from several."""
    zeros = torch.stack([zero for zero, _ in digits]).numpy()
    ones = torch.stack([one for _, one in digits]).numpy()
    touched = (zeros | ones).any(0)
    is_single = not (zeros & ones).any() and bool((~touched | (zeros | ones).all(0)).all())
    units = (ones << np.arange(len(digits))[:, None]).sum(0)
    return np.where(touched, units, -1).astype(np.int64), is_single


class _Joined:
    """Layers whose units are added up, or normalised, and are therefore cut together: unit j of each is one unit."""

    def __init__(self, units: Mapping[str, int]) -> None:
        self.units, self.parent = dict(units), {name: name for name in units}
        self.fixed: set[str] = set()
        self.inputs: dict[str, list[tuple[str, Ids]]] = {}

    def fix(self, name: str) -> None:
        """Never cut the units of a layer."""
        self.fixed.add(name)

    def connect(self, maker: str, reader: str, units: Ids, is_norm: bool) -> None:
        """Note which units of a layer are the inputs of another."""
        for other, before in self.inputs.setdefault(reader, []):
            both = (units >= 0) & (before >= 0)
            if both.any():
                if not np.array_equal(units[both], before[both]):
                    raise CannotCutError(f"{reader} adds up different units of {maker} and {other}")
                self._join(maker, other)
        self.inputs[reader].append((maker, units))
        if is_norm:
            if not np.array_equal(units, np.arange(self.units[reader])):
                raise CannotCutError(f"{reader} normalises units of several layers together")
            self._join(maker, reader)

    def groups(self) -> tuple[dict[str, int], tuple[int, ...]]:
        """Return the number of each layer's group, −1 where it is never cut, and the size of each group."""
        fixed = {self._root(name) for name in self.fixed}
        roots = list(dict.fromkeys(self._root(name) for name in self.units))
        cut = [root for root in roots if root not in fixed]
        numbers = {name: cut.index(root) if (root := self._root(name)) in cut else -1 for name in self.units}
        return numbers, tuple(self.units[root] for root in cut)

    def _root(self, name: str) -> str:
        while self.parent[name] != name:
            name = self.parent[name]
        return name

    def _join(self, one: str, other: str) -> None:
        if self.units[one] != self.units[other]:
            raise CannotCutError(f"{one} and {other} are added up and differ in their number of units")
        first, second = self._root(one), self._root(other)
        self.parent[second] = first
