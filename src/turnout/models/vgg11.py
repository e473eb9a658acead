"""VGG11: VGG-11 without normalisation, the model of the FedNova experiments on CIFAR-10.

Intuition: eight convolutions in sequence without normalisation, so training is sensitive to large local steps.

    64, pool, 128, pool, 256, 256, pool, 512, 512, pool, 512, 512, pool      (3×3, same, ReLU after each)
    → dropout ½ → 512 → ReLU → dropout ½ → 512 → ReLU → outputs
    conv weight ~ N(0, 2/(k²·maps_out)), conv bias 0

Reduces to: the same network without dropout at evaluation.
Differs from the paper: two hidden layers of 512 units instead of 4096, for 32×32 images.
Reference: Simonyan, Zisserman. ICLR 2015. arXiv:1409.1556; Wang et al. (FedNova). NeurIPS 2020. arXiv:2007.07481.
"""

import math

import torch
from torch import nn

from turnout.models.initialise import build_initialised
from turnout.models.shapes import image_size
from turnout.settings import rule

STAGES = (
    (64,),
    (128,),
    (256, 256),
    (512, 512),
    (512, 512),
)  # feature maps of the convolutions; pooling ends each stage


def vgg11(image: tuple[int, int, int], num_outputs: int) -> nn.Sequential:
    """Return the five stages of convolutions and the classifier."""
    maps_in, height, width = image
    layers: list[nn.Module] = []
    for stage in STAGES:
        for maps in stage:
            layers += [nn.Conv2d(maps_in, maps, 3, padding=1), nn.ReLU()]
            maps_in = maps
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(maps_in * (height // 32) * (width // 32), 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(512, 512),
        nn.ReLU(),
        nn.Linear(512, num_outputs),
    )


def draw_convolutions(module: nn.Module, generator: torch.Generator) -> nn.Module:
    """Draw the weights of the convolutions so that layers preserve the variance, in place, and return the module."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                spread = math.sqrt(2.0 / (math.prod(layer.kernel_size) * layer.out_channels))  # √(2/(k²·maps_out))
                layer.weight.normal_(0.0, spread, generator=generator)
                if layer.bias is not None:
                    layer.bias.zero_()
    return module


@rule("model")
class VGG11:
    """Eight convolutions and two hidden layers, with dropout. No settings."""

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        image = image_size("VGG11", example_shape, least=32)
        return draw_convolutions(build_initialised(lambda: vgg11(image, num_outputs), generator), generator)
