"""Slices: smaller modules of the same architecture, and where their parameters lie in the whole model's vector.

A slice keeps some units of every hidden layer, and of every layer behind it the inputs that come from these units.
Outputs and data are never cut. With units U_l of layer l:

    parameters of a linear layer  |U_l| · |U_{l−1}| + |U_l|

The slice is the definition of a narrow model: a GroupNorm normalises over the channels that are there.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnout.array_types import Ids
from turnout.errors import ConfigError
from turnout.models.layout import Layout, Slot
from turnout.models.training_modules import Distilling, MaskedOutputs, scale
from turnout.models.unit_groups import KINDS, Anatomy, CannotCutError, Layer, anatomy_of
from turnout.number_format import plural
from turnout.parameter_grids import Grid, Grids, Place
from turnout.submodels import Submodel
from turnout.untrusted_input import in_brief

MOST_REMEMBERED = 64  # submodels whose columns are kept: units that never change are worked out once
Cut = tuple[int, ...]  # number of units in each group of units
Units = Sequence[Ids]  # units that are kept, ascending, for each group of units; in `_kept`, one row per submodel


@dataclass(frozen=True, slots=True, eq=False)
class Slices:
    """The slices of one module."""

    module: nn.Module
    sample: Tensor  # on which a slice is tried out
    layout: Layout
    anatomy: Anatomy
    _known: dict[tuple[bytes, ...], Submodel] = field(default_factory=dict)
    _modules: dict[tuple[Cut, bool, bool, Cut | None], nn.Module] = field(default_factory=dict)  # by `cut`'s arguments
    _narrow: dict[Cut, tuple[Layout, float]] = field(default_factory=dict)  # layout and cost of slices, by their size
    _labels: list[Tensor] = field(default_factory=list)  # what `label_columns` returns, once it is known

    @classmethod
    def of(cls, module: nn.Module, sample: Tensor) -> "Slices":
        """Return the slices of a module; raise ConfigError where it cannot be cut."""
        try:
            anatomy = anatomy_of(module, sample)
            if not anatomy.sizes:
                raise CannotCutError("it has no hidden units")
        except CannotCutError as error:
            raise _refusal(module, str(error)) from None
        except Exception as error:  # modules raise any exception on a shape that they do not expect
            raise _refusal(
                module, f"it fails on a sample of shape {tuple(sample.shape[1:])}: {in_brief(error)}"
            ) from error
        return cls(module, sample, Layout.of(module), anatomy)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of units in each group of units."""
        return self.anatomy.sizes

    def submodel(self, units: Units) -> Submodel:
        """Return the submodel with these units."""
        key = tuple(np.asarray(each, dtype=np.int64).tobytes() for each in units)
        if key not in self._known:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            one = self._submodels([np.asarray(each)[None] for each in units])[0]
            self._known[key] = replace(one, where=one.columns)
        return self._known[key]

    def submodels(self, units: Units) -> list[Submodel]:
        """Return submodels of one size, given the units of each: one row per submodel, or one list for all of them.

        There is one submodel alone where every list is for all.
        """
        count = max((len(each) for each in units if each.ndim == 2), default=1)
        if all(each.ndim == 1 or each.shape[1] == size for each, size in zip(units, self.sizes, strict=True)):
            return [self.submodel([each if each.ndim == 1 else each[0] for each in units])] * count
        return self._submodels([np.broadcast_to(each, (count, each.shape[-1])) for each in units])

    def _submodels(self, units: Units) -> list[Submodel]:
        sizes = tuple(each.shape[1] for each in units)
        if sizes not in self._narrow:
            cost = self._multiply_adds(sizes) / self._multiply_adds(self.sizes)
            self._narrow[sizes] = Layout.of(self.cut(sizes)), cost
        layout, cost = self._narrow[sizes]
        grids = self._grids(units, layout)
        return [Submodel(sizes, Place(grids, row), cost, sizes == self.sizes) for row in range(len(units[0]))]

    def cut(
        self, sizes: Sequence[int], scaled: bool = False, masked: bool = False, distil: Cut | None = None
    ) -> nn.Module:
        """Return the module with so many units in each group, always the same; its parameters are of no use.

        With `scaled`, the outputs of a cut layer are divided by the share of its units that is there, in training.
        With `masked`, outputs are multiplied by factors, which are the module's first parameters. With `distil`, they
        are followed by the outputs of the first units, so many in each group.
        Raises ConfigError where the module does not run with so few.
        """
        key = (tuple(sizes), scaled, masked, distil)
        if key not in self._modules:
            made = self._new(key[0], scaled)
            if masked:
                made = MaskedOutputs(made, _in_eval(made, self.sample).shape[1])
            if distil is not None:
                made = Distilling(made, self._new(distil, scaled), self._first(made, key[0], distil))
            self._modules[key] = made
        return self._modules[key]

    def _first(self, wide: nn.Module, sizes: Cut, fewer: Cut) -> dict[str, tuple[Ids | None, ...]]:
        """Return what the first units of a slice keep of each dimension of its parameters."""
        kept = {}
        for layer in self.anatomy.layers:
            all_inputs, (units, inputs) = self._kept_first(layer, sizes)[1], self._kept_first(layer, fewer)
            here = wide.get_submodule(layer.name)
            for name, axes in _axes(here, units, np.searchsorted(all_inputs, inputs)).items():
                kept[f"{layer.name}.{name}" if layer.name else name] = axes
        return kept

    def label_columns(self) -> Tensor:
        """Return the label whose row of the last layer each parameter belongs to; −1 for parameters of other layers.

        Raises ConfigError if there is no linear layer whose outputs are those of the module.
        """
        if not self._labels:
            heads = [layer for layer in self.anatomy.layers if self._makes_outputs(layer)]
            if len(heads) != 1:
                raise ConfigError(
                    f"mask_labels needs a model that ends with a linear layer, one output per label; "
                    f"{type(self.module).__name__} does not. Change the model, or set width.mask_labels = false.",
                    setting="width.mask_labels",
                )
            found = torch.full((self.layout.size,), -1)
            for slot in self.layout.slots:
                if slot.name in {f"{heads[0].name}.{name}".lstrip(".") for name in ("weight", "bias")}:
                    rows = slot.seen(torch.arange(slot.start, slot.stop).view(slot.stored_shape))
                    found[rows.reshape(len(rows), -1)] = torch.arange(len(rows))[:, None]
            self._labels.append(found.to(self.sample.device))
        return self._labels[0]

    def _makes_outputs(self, layer: Layer) -> bool:
        """Whether the outputs of a linear layer are those of the module: rows that are 0 give outputs that are 0."""
        whole = _in_eval(self.module, self.sample)
        if type(layer.module) is not nn.Linear or whole.dim() != 2 or layer.module.out_features != whole.shape[1]:
            return False
        number = torch.arange(whole.shape[1], device=whole.device)
        for digit in range(max(1, (len(number) - 1).bit_length())):
            kept = number >> digit & 1
            tried = copy.deepcopy(self.module)
            with torch.no_grad():
                for parameter in tried.get_submodule(layer.name).parameters():
                    parameter.mul_(kept.view(-1, *[1] * (parameter.dim() - 1)))
            if not torch.equal(_in_eval(tried, self.sample), whole * kept):
                return False
        return True

    def _new(self, sizes: tuple[int, ...], scaled: bool) -> nn.Module:
        made = copy.deepcopy(self.module)
        try:
            for layer in self.anatomy.layers:
                _replace(made, layer, *self._kept_first(layer, sizes))
                if scaled and layer.group >= 0:
                    scale(made.get_submodule(layer.name), sizes[layer.group] / self.sizes[layer.group])
            whole, out = (_in_eval(module, self.sample) for module in (self.module, made))
        except CannotCutError as error:
            raise _refusal(self.module, str(error), OTHER_RATES) from None
        except Exception as error:  # modules raise any exception on a shape that they do not expect
            raise _refusal(self.module, f"with fewer units it fails: {in_brief(error)}", OTHER_RATES) from error
        if out.shape != whole.shape:
            raise _refusal(self.module, f"with fewer units its output has shape {tuple(out.shape)}")
        return made

    def _kept_first(self, layer: Layer, sizes: Sequence[int]) -> tuple[Ids, Ids]:
        """Return which units and which inputs of a layer are kept where the first units of each group are."""
        outputs, inputs = self._kept(layer, [np.arange(size)[None] for size in sizes])
        return outputs[0], inputs[0]

    def _kept(self, layer: Layer, units: Units) -> tuple[Ids, Ids]:
        """Return which units and which inputs of a layer are kept: one row per submodel, or one where all are kept."""
        is_cut = (layer.feature_groups >= 0).any()
        count = len(units[0]) if is_cut else 1
        inputs = np.repeat(layer.feature_groups[None] < 0, count, axis=0)
        for group, chosen in enumerate(units if is_cut else ()):
            here, is_chosen = layer.feature_groups == group, np.zeros((count, self.sizes[group]), dtype=bool)
            np.put_along_axis(is_chosen, chosen, True, axis=1)
            inputs[:, here] = is_chosen[:, layer.feature_units[here]]
        if layer.group >= 0:
            outputs = units[layer.group]
        else:
            outputs = np.arange(KINDS[type(layer.module)].units(layer.module))[None]
        return outputs, np.nonzero(inputs)[1].reshape(len(inputs), -1)

    def _grids(self, units: Units, narrow: Layout) -> Grids:
        """Return where submodels of this layout lie in the whole vector, parameter by parameter."""
        whole, kept = {slot.name: slot for slot in self.layout.slots}, {}
        for layer in self.anatomy.layers:
            for name, axes in _axes(layer.module, *self._kept(layer, units)).items():
                kept[f"{layer.name}.{name}" if layer.name else name] = axes
        grids = [_grid(whole[slot.name], slot, kept[slot.name], len(units[0])) for slot in narrow.slots]
        return Grids(narrow.size, tuple(replace(grid, kept=grid.kept.to(self.sample.device)) for grid in grids))

    def _multiply_adds(self, sizes: Sequence[int]) -> int:
        """Return the multiplications of one sample's forward pass with so many units in each group."""
        total = 0
        for layer in self.anatomy.layers:
            outputs, inputs = self._kept_first(layer, sizes)
            total += layer.positions * _products(layer.module, len(outputs), len(inputs))
        return total


OTHER_MODEL = "Use a model of linear, convolutional, LSTM and GroupNorm layers, or leave width out."
OTHER_RATES = "Change width.rates or the model, or leave width out."


def _refusal(module: nn.Module, reason: str, advice: str = OTHER_MODEL) -> ConfigError:
    message = f"width needs a model that can be cut; {type(module).__name__} cannot: {reason}. {advice}"
    return ConfigError(message, setting="model")


def _in_eval(module: nn.Module, sample: Tensor) -> Tensor:
    was_training = module.training
    with torch.no_grad():
        out: Tensor = module.eval()(sample)
    module.train(was_training)
    return out


def _products(layer: nn.Module, outputs: int, inputs: int) -> int:
    """Return the multiplications of one application of a layer to one sample; those of norms are not counted."""
    if isinstance(layer, nn.Linear):
        return outputs * inputs
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return outputs * inputs * prod(layer.kernel_size)
    if isinstance(layer, nn.LSTM):
        return 4 * outputs * (inputs + outputs + (layer.num_layers - 1) * 2 * outputs)
    return 0


def _axes(layer: nn.Module, outputs: Ids, inputs: Ids) -> dict[str, tuple[Ids | None, ...]]:
    """Return what is kept of each dimension of each parameter of a layer; None: all."""
    if isinstance(layer, nn.LSTM):
        gates = np.concatenate([gate * layer.hidden_size + outputs for gate in range(4)], axis=-1)
        axes: dict[str, tuple[Ids | None, ...]] = {}
        for at in range(layer.num_layers):
            axes[f"weight_ih_l{at}"] = (gates, outputs if at else inputs)
            axes[f"weight_hh_l{at}"] = (gates, outputs)
            axes |= {f"bias_{side}_l{at}": (gates,) for side in ("ih", "hh") if layer.bias}
        return axes
    if isinstance(layer, nn.Embedding):
        return {"weight": (None, outputs)}
    per_unit: dict[str, tuple[Ids | None, ...]] = {name: (outputs,) for name, _ in layer.named_parameters()}
    return per_unit if KINDS[type(layer)].is_norm else per_unit | {"weight": (outputs, inputs)}


def _grid(whole: Slot, narrow: Slot, axes: tuple[Ids | None, ...], count: int) -> Grid:
    """Return which entries of a parameter so many submodels keep; dimensions are in the order of their own vector."""
    flipped = whole.transposed != narrow.transposed
    sizes, strides = whole.stored_shape, torch.empty(whole.stored_shape, device="meta").stride()
    sizes, strides = (sizes[::-1], strides[::-1]) if flipped else (sizes, strides)
    by_dim = [axes[dim] if dim < len(axes) else None for dim in range(len(sizes))]
    by_dim = by_dim[::-1] if narrow.transposed else by_dim
    cut = [
        dim for dim, size in enumerate(narrow.stored_shape) if len(_all_of(by_dim[dim], size)) > 1 or size < sizes[dim]
    ]
    first, last = (cut[0], cut[-1] + 1) if cut else (0, len(sizes))
    step, kept = min(strides[first:last]), np.zeros((1, 1), dtype=np.int64)
    for dim in range(first, last):
        each = _all_of(by_dim[dim], sizes[dim]) * (strides[dim] // step)
        kept = (kept[:, :, None] + each[:, None, :]).reshape(max(len(kept), len(each)), -1)
    return Grid(
        start=whole.start,
        shape=(prod(sizes[:first]), prod(sizes[last:]), prod(sizes[first:last])),
        strides=(strides[first - 1] if first else 1, strides[-1] if last < len(sizes) else 1, step),
        own=slice(narrow.start, narrow.stop),
        kept=torch.from_numpy(kept).expand(count, -1),
    )


def _all_of(kept: Ids | None, size: int) -> Ids:
    """Return what is kept of a dimension, one row for each submodel or one for all of them."""
    return np.arange(size)[None] if kept is None else kept


def _replace(module: nn.Module, layer: Layer, outputs: Ids, inputs: Ids) -> None:
    """Replace a layer of the module by one with these units and inputs, and their parameters."""
    old = module.get_submodule(layer.name)
    new = _empty(old, layer.name, len(outputs), len(inputs))
    values, places = dict(old.named_parameters()), dict(new.named_parameters())
    with torch.no_grad():
        for key, axes in _axes(old, outputs, inputs).items():
            kept: Tensor = values[key]
            for dim, keep in enumerate(axes):
                kept = kept if keep is None else kept.index_select(dim, torch.from_numpy(keep).to(kept.device))
            places[key].copy_(kept)
    new.train(old.training)
    module.set_submodule(layer.name, new)


def _empty(old: nn.Module, name: str, outputs: int, inputs: int) -> nn.Module:
    """Return a layer like the old one with so many units and inputs; its values are not set."""
    like = next(old.parameters())
    how: dict[str, Any] = {"device": "meta", "dtype": like.dtype}
    new: nn.Module
    if isinstance(old, nn.Linear):
        new = nn.Linear(inputs, outputs, old.bias is not None, **how)
    elif isinstance(old, nn.Conv1d | nn.Conv2d):
        kind: Any = type(old)
        shape = (old.kernel_size, old.stride, old.padding, old.dilation, 1, old.bias is not None, old.padding_mode)
        new = kind(inputs, outputs, *shape, **how)
    elif isinstance(old, nn.LSTM):
        new = nn.LSTM(inputs, outputs, old.num_layers, old.bias, old.batch_first, old.dropout, **how)
    elif isinstance(old, nn.Embedding):
        options: Any = (old.padding_idx, old.max_norm, old.norm_type, old.scale_grad_by_freq, old.sparse)
        new = nn.Embedding(old.num_embeddings, outputs, *options, **how)
    elif isinstance(old, nn.GroupNorm):
        if outputs % old.num_groups:
            raise CannotCutError(
                f"{name} normalises {old.num_groups} groups of channels, and {plural(outputs, 'channel')} cannot be "
                "divided among them"
            )
        new = nn.GroupNorm(old.num_groups, outputs, old.eps, **how)
    else:
        assert isinstance(old, nn.LayerNorm)
        new = nn.LayerNorm(outputs, old.eps, bias=old.bias is not None, **how)
    return new.to_empty(device=like.device)
