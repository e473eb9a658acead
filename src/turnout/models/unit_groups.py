"""Unit groups: which units of a model's layers belong together, so that they are kept or cut together.

Intuition: mark a unit of a layer with NaN and see which inputs of the next layers become NaN.

Every layer with parameters is a barrier: what arrives at its inputs is noted and removed again. A unit of one layer
thus marks the inputs of the layers directly behind it, through activations, pooling, flattening, additions and
concatenations, whatever the module's code is. Units are told apart by their binary digits: two passes per digit.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
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
    trace = _Trace(module, sample)
    sources = {name: trace.follow(name) for name in layers}
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
class _Reached:
    """Where the units of a layer arrive."""

    units: dict[str, Ids] = field(default_factory=dict)  # by layer: which unit each of its inputs is; −1: none
    at_output: bool = False  # of the whole module


class _Trace:
    """A copy of the module, in which units can be marked and every layer notes which of its inputs are."""

    def __init__(self, module: nn.Module, sample: Tensor) -> None:
        self.module, self.sample = copy.deepcopy(module).eval(), sample
        self.positions: dict[str, int] = {}
        self.layers = dict(_layers(self.module))
        self.marked: tuple[str, Tensor] | None = None  # a layer, and which of its units
        self.seen: dict[str, Tensor] = {}
        for name, layer in self.layers.items():
            layer.register_forward_pre_hook(self._before(name))
            layer.register_forward_hook(self._after(name))

    def follow(self, name: str) -> _Reached:
        """Return where the units of a layer arrive."""
        count = KINDS[type(self.layers[name])].units(self.layers[name])
        number = torch.arange(count)
        reached, hits = _Reached(), list[tuple[dict[str, Tensor], dict[str, Tensor]]]()
        for digit in range(max(1, (count - 1).bit_length())):
            ones = (number >> digit & 1).bool()
            zero_hits, zero_out = self._run(name, ~ones)
            one_hits, one_out = self._run(name, ones)
            reached.at_output |= zero_out or one_out
            hits.append((zero_hits, one_hits))
        for reader in hits[0][0]:
            units = _decoded([(zeros[reader], ones[reader]) for zeros, ones in hits], name, reader)
            if (units >= 0).any():
                reached.units[reader] = units
        return reached

    def _run(self, name: str, units: Tensor) -> tuple[dict[str, Tensor], bool]:
        """Mark these units of a layer; return which inputs of each layer are marked, and whether an output is."""
        self.marked, self.seen = (name, units), {}
        with torch.no_grad():
            out = self.module(self.sample)
        unused = self.layers.keys() - self.seen.keys()
        if unused:
            raise CannotCutError(f"{min(unused)} is not used")
        return self.seen, bool(torch.isnan(out).any())

    def _before(self, name: str) -> Callable[..., Any]:
        def hook(layer: nn.Module, args: tuple[Any, ...]) -> Any:
            kind = KINDS[type(layer)]
            if name in self.seen:
                raise CannotCutError(f"{name} is used more than once in one pass")
            if not args or not isinstance(args[0], Tensor):
                raise CannotCutError(f"{name} gets its input by name")
            if not kind.features(layer):
                self.seen[name] = torch.zeros(0, dtype=torch.bool)
                return None
            x = args[0]
            is_marked = torch.isnan(x)
            self.seen[name] = is_marked.movedim(kind.dim, 0).flatten(1).any(1).cpu()
            return (torch.where(is_marked, torch.zeros_like(x), x), *args[1:])

        return hook

    def _after(self, name: str) -> Callable[..., Any]:
        def hook(layer: nn.Module, args: Any, out: Any) -> Any:
            kind = KINDS[type(layer)]
            first = out[0] if isinstance(out, tuple) else out
            self.positions[name] = first.numel() // kind.units(layer) // len(self.sample)
            if self.marked is None or self.marked[0] != name:
                return None
            where = self.marked[1].nonzero()[:, 0].to(first.device)

            def mark(x: Tensor) -> Tensor:
                return x.index_fill(kind.dim, where, torch.nan)

            if isinstance(out, tuple):  # an LSTM: outputs, and the last states of all its layers
                return mark(out[0]), tuple(mark(state) for state in out[1])
            return mark(out)

        return hook


def _decoded(digits: list[tuple[Tensor, Tensor]], maker: str, reader: str) -> Ids:
    """Return which unit each input comes from, from the passes in which it was marked; −1 for none."""
    zeros = torch.stack([zero for zero, _ in digits]).numpy()
    ones = torch.stack([one for _, one in digits]).numpy()
    touched = (zeros | ones).any(0)
    if (zeros & ones).any() or (touched & ~(zeros | ones).all(0)).any():
        raise CannotCutError(f"an input of {reader} depends on several units of {maker}")
    units = (ones << np.arange(len(digits))[:, None]).sum(0)
    return np.where(touched, units, -1).astype(np.int64)


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
