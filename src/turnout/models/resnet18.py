"""ResNet-18 for small images, with group normalisation.

Intuition: batch statistics of one client mislead another, so each sample is normalised by itself.

    conv 3×3, 64 → 2 blocks each of 64, 128, 256, 512 maps (all but the first stage halve the image) → pool → outputs
    block(x) = ReLU( GN(conv 3×3( ReLU(GN(conv 3×3(x))) )) + shortcut(x) )

Reduces to: layer normalisation over channels and pixels when groups = 1.
Differs from the paper: a 3×3 stem without pooling, for 32×32 images; GroupNorm in place of BatchNorm. The average is
taken over the whole last map; pooling = "corner" is the FedExP code's, which sees only its top-left 3×3.
Reference: He, Zhang, Ren, Sun. CVPR 2016. arXiv:1512.03385; Hsieh et al. ICML 2020. arXiv:1910.00189.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from turnout.errors import ConfigError
from turnout.models.initialise import drawn
from turnout.models.shapes import image_size
from turnout.settings import rule

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # maps, and the stride of the stage's first block


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, maps_in: int, maps: int, stride: int, groups: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(maps_in, maps, 3, stride=stride, padding=1, bias=False),
            nn.GroupNorm(groups, maps),
            nn.ReLU(),
            nn.Conv2d(maps, maps, 3, padding=1, bias=False),
            nn.GroupNorm(groups, maps),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or maps_in != maps:
            self.shortcut = nn.Sequential(
                nn.Conv2d(maps_in, maps, 1, stride=stride, bias=False), nn.GroupNorm(groups, maps)
            )
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output."""
        out: Tensor = self.relu(self.main(x) + self.shortcut(x))
        return out


def resnet18(channels: int, num_outputs: int, groups: int, pool: nn.Module) -> nn.Sequential:
    """Return the stem, eight blocks, this pooling and one linear layer."""
    stem = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.GroupNorm(groups, 64), nn.ReLU()]
    blocks, maps_in = [], 64
    for maps, stride in STAGES:
        blocks += [Block(maps_in, maps, stride, groups), Block(maps, maps, 1, groups)]
        maps_in = maps
    return nn.Sequential(*stem, *blocks, pool, nn.Flatten(), nn.Linear(maps_in, num_outputs))


@rule("model")
class ResNet18:
    """Eight residual blocks with group normalisation."""

    groups: Literal[1, 2, 4, 8, 16, 32, 64] = 2  # of channels that are normalised together
    pooling: Literal["global", "corner"] = "global"  # what the last map is averaged over

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        channels, *sides = image_size("ResNet18", example_shape, least=1)
        if self.pooling == "corner" and not all(17 <= side <= 40 for side in sides):
            raise ConfigError(
                f'ResNet18 with pooling = "corner" needs images of 17 to 40 pixels a side; got {sides[0]}x{sides[1]}. '
                'Set model.pooling = "global".'
            )
        pool = nn.AdaptiveAvgPool2d(1) if self.pooling == "global" else nn.AvgPool2d(3)
        return drawn(lambda: resnet18(channels, num_outputs, self.groups, pool), generator)
