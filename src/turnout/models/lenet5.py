"""LeNet5: LeNet-5 with ReLU and max pooling.

Intuition: a small classic network, cheap enough for hundreds of clients with colour images.

    conv 5×5, 6 → ReLU → pool 2 → conv 5×5, 16 → ReLU → pool 2 → 120 → ReLU → 84 → ReLU → outputs

Reduces to: the power-of-choice network for CIFAR-10 when dense = (120, 100, 84, 50).
Differs from the paper: ReLU and max pooling instead of tanh, trained subsampling and partial connections, as is
usual in federated learning.
Reference: LeCun, Bottou, Bengio, Haffner. Proc. IEEE 86(11), 1998; Gu et al. (MIFA). arXiv:2106.04159.
"""

import torch
from torch import nn

from turnout.models.initialise import build_initialised
from turnout.models.mlp import perceptron
from turnout.models.shapes import image_size
from turnout.settings import Width, rule

LEAST = 16  # smallest height and width in pixels: ((16 − 4)/2 − 4)/2 = 1


def valid_cnn(image: tuple[int, int, int], maps: tuple[int, int], widths: tuple[int, ...]) -> nn.Sequential:
    """Return two unpadded 5×5 convolutions, each halved by pooling, and linear layers of these widths."""
    channels, *sides = image
    height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
    return nn.Sequential(
        nn.Conv2d(channels, maps[0], 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(maps[0], maps[1], 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *perceptron((maps[1] * height * width, *widths)),
    )


@rule("model")
class LeNet5:
    """Two small convolutions and a few linear layers."""

    dense: tuple[Width, ...] = (120, 84)  # number of units of each hidden layer, 1 or more; 120 and 84 is usual

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        image = image_size("LeNet5", example_shape, LEAST)
        return build_initialised(lambda: valid_cnn(image, (6, 16), (*self.dense, num_outputs)), generator)
