"""ResNet18: ResNet-18 for small images, with group normalisation.

Intuition: batch statistics differ between clients, so each sample is normalised by itself.

    conv 3×3, 64 → 2 blocks each of 64, 128, 256, 512 maps (each stage but the first halves the image) → pool → outputs
    block(x) = ReLU( GN(conv 3×3( ReLU(GN(conv 3×3(x))) )) + shortcut(x) )

Reduces to: layer normalisation over channels and pixels when groups = 1.
Differs from the paper: a 3×3 stem without pooling, for 32×32 images, and GroupNorm instead of BatchNorm. The average is
taken over the whole last feature map; pooling = "corner" averages only its top-left 3×3, as the FedExP code does.
Reference: He, Zhang, Ren, Sun. CVPR 2016. arXiv:1512.03385; Hsieh et al. ICML 2020. arXiv:1910.00189.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from turnout.errors import ConfigError
from turnout.models.initialise import build_initialised
from turnout.models.shapes import image_size
from turnout.settings import rule

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # feature maps, and the stride of the stage's first block


class Block(nn.Module):
    """A residual block: two convolutions and a shortcut."""

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
    """Return the stem, eight blocks, the pooling layer and one linear layer."""
    stem = [nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.GroupNorm(groups, 64), nn.ReLU()]
    blocks, maps_in = [], 64
    for maps, stride in STAGES:
        blocks += [Block(maps_in, maps, stride, groups), Block(maps, maps, 1, groups)]
        maps_in = maps
    return nn.Sequential(*stem, *blocks, pool, nn.Flatten(), nn.Linear(maps_in, num_outputs))


@rule("model")
class ResNet18:
    """Eight residual blocks with group normalisation."""

    groups: Literal[1, 2, 4, 8, 16, 32, 64] = 2  # number of channel groups of GroupNorm, a power of two from 1 to 64
    # average pooling of the last feature map: "global" over the whole map (usual), "corner" over its top-left 3×3
    pooling: Literal["global", "corner"] = "global"

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        channels, *sides = image_size("ResNet18", example_shape, least=1)
        if self.pooling == "corner" and not all(17 <= side <= 40 for side in sides):
            raise ConfigError(
                f'ResNet18 with pooling = "corner" needs images of 17 to 40 pixels a side; got {sides[0]}x{sides[1]}. '
                'Set model.pooling = "global".',
                setting="model.pooling",
            )
        pool = nn.AdaptiveAvgPool2d(1) if self.pooling == "global" else nn.AvgPool2d(3)
        return build_initialised(lambda: resnet18(channels, num_outputs, self.groups, pool), generator)
