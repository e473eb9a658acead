"""Modules that narrow models are trained as: with scaled layers, with masked outputs, or with a part of themselves."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from turnout.array_types import Ids

FACTORS, INNER = "factors", "module"  # names of the factors of a module's outputs, and of the module that is wrapped


class MaskedOutputs(nn.Module):
    """A module whose outputs are multiplied by factors that are parameters, so that every client may have its own."""

    def __init__(self, module: nn.Module, outputs: int) -> None:
        super().__init__()
        like = next(module.parameters())
        self.factors = nn.Parameter(torch.ones(outputs, dtype=like.dtype, device=like.device))
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        out: Tensor = self.module(x) * self.factors
        return out


class Distilling(nn.Module):
    """A module and a part of it: the outputs of both, side by side. The part has no parameters of its own."""

    def __init__(self, module: nn.Module, part: nn.Module, kept: Mapping[str, tuple[Ids | None, ...]]) -> None:
        super().__init__()
        self.module = module
        self._part = (part.train(),)  # in a tuple: its parameters are not those of this module
        self._kept = {
            name: [None if each is None else torch.from_numpy(each) for each in axes] for name, axes in kept.items()
        }

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of the module, and then those of its part."""
        values = dict(self.module.named_parameters())
        narrow: Tensor = functional_call(self._part[0], {name: self._cut(values[name], name) for name in values}, (x,))
        return torch.cat([self.module(x), narrow], 1)

    def _cut(self, value: Tensor, name: str) -> Tensor:
        for dim, keep in enumerate(self._kept[name]):
            value = value if keep is None else value.index_select(dim, keep.to(value.device))
        return value


class ScaledLinear(nn.Linear):
    """A linear layer whose outputs are divided by the share of its units that is there, in training."""

    share: float

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        out = super().forward(x)
        return out / self.share if self.training else out


class ScaledConv2d(nn.Conv2d):
    """A convolution whose outputs are divided by the share of its channels that is there, in training."""

    share: float

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        out = super().forward(x)
        return out / self.share if self.training else out


SCALED: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: ScaledLinear, nn.Conv2d: ScaledConv2d}


def scale(layer: nn.Module, share: float) -> None:
    """Make a layer one whose outputs are scaled; layers of other types stay as they are."""
    if type(layer) in SCALED:
        layer.__class__ = SCALED[type(layer)]
        layer.share = share  # type: ignore[assignment]
