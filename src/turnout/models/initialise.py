"""Initial weights from an explicit generator: PyTorch's default distributions without global random state.

Intuition: the same generator gives the same model, whatever else the program has drawn before.

    Linear, Conv   weight, bias ~ U(±1/√fan_in)      (Kaiming uniform with a = √5)
    Embedding      weight ~ N(0, 1)
    LSTM, GRU, RNN every weight and bias ~ U(±1/√hidden)
    norms          weight 1, bias 0
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from turnout.errors import ConfigError
from turnout.limits import check_memory

COPIES, NUMBER_BYTES = 4, 4  # vectors of the model's size that a run needs at least, and bytes of a float32
AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORMS = (nn.GroupNorm, nn.LayerNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
DRAWS = (nn.init.kaiming_uniform_, nn.init.uniform_, nn.init.normal_)  # called by the constructors of these layers


class MemoryCheck(TorchFunctionMode):
    """Counts weights before torch allocates them, so that a model that is too large for the machine is a ConfigError.

    The functions in `skipped` do nothing: `build_initialised` draws the weights later. The meta device would do
    the same, but its first use imports a symbolic algebra system, which takes up to 1.5 seconds.
    """

    def __init__(self, skipped: tuple[Callable[..., Any], ...] = ()) -> None:
        super().__init__()
        self.numbers, self.skipped = 0, skipped

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count the allocated numbers, and call the function unless it is skipped."""
        if func is torch.empty:
            size = args[0] if len(args) == 1 and not isinstance(args[0], int) else args
            self.numbers += math.prod(size)
            check_memory(
                COPIES * NUMBER_BYTES * self.numbers,
                "This model, with one client's copy of it, its gradient and its update,",
                "Make the [model] section smaller.",
            )
        return None if func in self.skipped else func(*args, **(kwargs or {}))


def build_initialised(make: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """Return the module that `make` constructs, with all weights drawn from the generator."""
    with MemoryCheck(skipped=DRAWS):
        module = make()
    return initialise(module.to(generator.device), generator)


def initialise(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw every weight of a module anew, in place and in the order of its layers, and return the module."""
    with torch.no_grad():
        for layer in module.modules():
            _initialise_layer(layer, generator)
    return module


def _initialise_layer(layer: nn.Module, generator: torch.Generator) -> None:
    if isinstance(layer, AFFINE):
        nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
        if layer.bias is not None:
            bound = 1.0 / math.sqrt(layer.weight[0].numel())  # 1/√fan_in
            layer.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(layer, nn.Embedding):
        layer.weight.normal_(generator=generator)
        if layer.padding_idx is not None:
            layer.weight[layer.padding_idx].zero_()
    elif isinstance(layer, nn.RNNBase):
        bound = 1.0 / math.sqrt(layer.hidden_size)
        for weight in layer.parameters():
            weight.uniform_(-bound, bound, generator=generator)
    elif isinstance(layer, NORMS):
        layer.reset_parameters()  # ones and zeros: no random draw
    elif any(True for _ in layer.parameters(recurse=False)):
        raise ConfigError(
            "initialise needs layers of a known type (Linear, Conv, Embedding, LSTM, GRU, RNN and norms); "
            f"got {type(layer).__name__}, which has weights of its own. Initialise those weights in the module itself."
        )
