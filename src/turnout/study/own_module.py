"""A module class of the user's own as a model rule: `model = { use = "package.module:Net", width = 32 }`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from turnout.models.initialise import drawn


@dataclass(frozen=True, slots=True)
class OwnModule:
    """Makes the class with the settings given; its weights are drawn from the run's own stream."""

    module: type[nn.Module]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the module; it knows its own shapes."""
        return drawn(lambda: self.module(**self.settings), generator)
