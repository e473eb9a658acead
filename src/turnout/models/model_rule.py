"""A model rule: settings that build a module for samples of a given shape."""

from typing import Protocol

import torch
from torch import nn


class ModelRule(Protocol):
    """The settings of a model; they build a module for samples of a given shape."""

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return a new module; every random weight comes from the generator."""
        ...
