"""CNN: the convolutional network of the FedAvg paper.

Intuition: two convolutions with pooling extract features, and one wide hidden layer classifies them.

    conv 5×5, 32, same → ReLU → pool 2 → conv 5×5, 64, same → ReLU → pool 2 → dense → ReLU → outputs

Reduces to: the LEAF network for FEMNIST when dense = 2048.
Reference: McMahan et al. AISTATS 2017. arXiv:1602.05629.
"""

import torch
from torch import nn

from turnout.models.initialise import build_initialised
from turnout.models.mlp import perceptron
from turnout.models.shapes import image_size
from turnout.settings import Width, rule


def same_cnn(image: tuple[int, int, int], dense: int, num_outputs: int) -> nn.Sequential:
    """Return two padded 5×5 convolutions, each halved by pooling, and two linear layers."""
    channels, height, width = image
    return nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *perceptron((64 * (height // 4) * (width // 4), dense, num_outputs)),
    )


@rule("model")
class CNN:
    """Two convolutions and one hidden layer."""

    dense: Width = 512  # number of units of the hidden layer, 1 or more; 512 is usual

    def build(self, example_shape: tuple[int, ...], num_outputs: int, generator: torch.Generator) -> nn.Module:
        """Return the model for images of this shape."""
        image = image_size("CNN", example_shape, least=4)
        return build_initialised(lambda: same_cnn(image, self.dense, num_outputs), generator)
