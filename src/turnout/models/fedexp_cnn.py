"""FedExpCNN: the convolutional network of the FedExP experiments on CIFAR-10 and CINIC-10.

Intuition: LeNet-5 with about five times as many feature maps; still small compared with a ResNet.

    conv 5×5, 32 → ReLU → pool 2 → conv 5×5, 64 → ReLU → pool 2 → 384 → ReLU → 192 → ReLU → outputs

Reduces to: LeNet-5 with other widths: 32 and 64 feature maps, not 6 and 16; 384 and 192 units, not 120 and 84.
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

import torch
from torch import nn

from turnout.models.initialise import build_initialised
from turnout.models.lenet5 import LEAST, valid_cnn
from turnout.models.shapes import image_size
from turnout.settings import rule


@rule("model")
class FedExpCNN:
    """Two convolutions and two hidden layers. No settings."""

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        image = image_size("FedExpCNN", example_shape, LEAST)
        return build_initialised(lambda: valid_cnn(image, (32, 64), (384, 192, num_outputs)), generator)
